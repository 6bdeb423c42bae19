// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics counts calls and refusals.
type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	mu       sync.Mutex
	byReason map[string]uint64
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		byReason: map[string]uint64{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "signet_grpc_requests_total",
			Help: "Calls answered, by method and gRPC code. Watches and sessions count when they end."}, []string{"method", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "signet_grpc_refusals_total",
			Help: "Calls and batch items refused, by gRPC code and reason."}, []string{"code", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "signet_grpc_request_seconds",
			Help: "Time of unary calls in seconds, by method.", Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)}, []string{"method"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.requests), reg.Register(m.refused), reg.Register(m.seconds))
}

func (m *metrics) answered(method string, err error, took time.Duration) {
	m.requests.WithLabelValues(method, status.Code(err).String()).Inc()
	if took > 0 {
		m.seconds.WithLabelValues(method).Observe(took.Seconds())
	}
}

// refuse counts one refusal: of a call, or of one item of a batch.
func (m *metrics) refuse(err error) {
	code := status.Code(toStatus(err))
	if code == codes.Canceled {
		return
	}
	reason := reasonOf(err)
	m.refused.WithLabelValues(code.String(), reason).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byReason[reason]++
}

func (m *metrics) refusals() map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.byReason)
}
