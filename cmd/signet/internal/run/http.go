// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newRegistry is a registry with what every process tells of itself.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// serveMetrics serves /metrics and /healthz. healthy returns nil, or why not.
func serveMetrics(l net.Listener, r *prometheus.Registry, healthy func(context.Context) error, log *slog.Logger) *part {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
		defer cancel()
		if err := healthy(ctx); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	p := background("metrics", func(context.Context) error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	p.stop = func(ctx context.Context) {
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
	}
	return p
}

// ListenError says why an address cannot be listened on.
type ListenError struct {
	Address string
	Use     string // what was to be served there
	Option  string // that chooses another one
	Err     error
}

// Error names address, use and the way out.
func (e *ListenError) Error() string {
	if errors.Is(e.Err, syscall.EADDRINUSE) {
		return fmt.Sprintf("the address %s (%s) is in use by another process; stop it, or choose another one with --%s", e.Address, e.Use, e.Option)
	}
	return fmt.Sprintf("cannot listen on %s (%s): %v; choose another address with --%s", e.Address, e.Use, e.Err, e.Option)
}

// Unwrap is the system's error.
func (e *ListenError) Unwrap() error { return e.Err }

const unixPrefix = "unix://"

// listen listens on host:port or unix:///path.
func listen(address, use, option string) (net.Listener, error) {
	network, at := "tcp", address
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, at = "unix", path
	}
	l, err := net.Listen(network, at)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Err != nil {
			err = op.Err
		}
		return nil, &ListenError{Address: address, Use: use, Option: option, Err: err}
	}
	return l, nil
}
