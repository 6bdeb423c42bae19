// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator"
	"github.com/signet-identity/signet/allocator/server"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

var webIdentity = allocator.Identity{Number: 1<<16 + 1, Labels: "k8s:app=web;", State: allocator.Live}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPanicBecomesInternalAndTheServerLives(t *testing.T) {
	r := start(t)
	r.set(func(m *memory) { m.panics = true })
	if _, err := r.identity.Allocate(testContext(t), allocateReq("a", "k8s:a=b")); status.Code(err) != codes.Internal {
		t.Errorf("a panic became %v", err)
	}
	b, err := r.identity.BatchAllocate(testContext(t), &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{allocateReq("a", "k8s:a=b")}})
	if err != nil || codes.Code(b.GetResults()[0].GetError().GetCode()) != codes.Internal {
		t.Errorf("a panic in a batch became %v, %v", b, err)
	}
	w, err := r.identity.WatchIdentities(testContext(t), &signetv1.WatchIdentitiesRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.Internal {
		t.Errorf("a panic in a stream became %v", err)
	}
	r.set(func(m *memory) { m.panics = false })
	if _, err := r.identity.Allocate(testContext(t), allocateReq("a", "k8s:a=b")); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestHealthFollowsTheBackend(t *testing.T) {
	r := start(t)
	h := healthv1.NewHealthClient(r.conn)
	for _, service := range []string{"", "signet.v1.IdentityService"} {
		for ready, want := range map[bool]healthv1.HealthCheckResponse_ServingStatus{true: 1, false: 2} {
			r.set(func(m *memory) { m.ready = ready })
			got, err := h.Check(testContext(t), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || got.GetStatus() != want {
				t.Errorf("ready %v: %v, %v", ready, got, err)
			}
		}
	}
	if _, err := h.Check(testContext(t), &healthv1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that is none: %v", err)
	}
	r.set(func(m *memory) { m.ready = false })
	w, err := h.Watch(testContext(t), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{2, 1} {
		got, err := w.Recv()
		if err != nil || got.GetStatus() != want {
			t.Fatalf("watched %v, %v, want %v", got, err, want)
		}
		r.set(func(m *memory) { m.ready = true })
	}
}

func TestReflectionListsTheServices(t *testing.T) {
	r := start(t)
	s, err := reflectionv1.NewServerReflectionClient(r.conn).ServerReflectionInfo(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range got.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	for _, want := range []string{"signet.v1.IdentityService", "signet.v1.NodeService", "signet.v1.AdminService", "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	_ = s.CloseSend()
	_, _ = s.Recv()
}

func TestStatusAndNodes(t *testing.T) {
	r := start(t)
	_, _ = r.identity.Allocate(testContext(t), allocateReq("a"))
	st, err := r.admin.Status(testContext(t), &signetv1.StatusRequest{})
	if err != nil || st.GetVersion() != "test" || st.GetRefusals()["empty-set"] != 1 {
		t.Errorf("status: %v, %v", st, err)
	}
	nodes, err := r.admin.ListNodes(testContext(t), &signetv1.ListNodesRequest{})
	if err != nil || len(nodes.GetItems()) != 2 {
		t.Fatalf("nodes: %v, %v", nodes, err)
	}
	if a, b := nodes.GetItems()[0], nodes.GetItems()[1]; a.GetState() != "present" || a.GetGoneSince() != nil ||
		a.GetAcknowledged().GetRevision() != 9 ||
		b.GetAcknowledged() != nil || b.GetState() != "gone" || b.GetGoneSince().GetServedS() != 70 {
		t.Errorf("nodes: %v and %v", a, b)
	}
}

func TestPublishItemsFailAlone(t *testing.T) {
	r := start(t)
	if _, err := r.identity.Allocate(testContext(t), allocateReq("node-a", "k8s:app=web")); err != nil {
		t.Fatal(err)
	}
	address := func(a, text, host string, number uint32, id string) *signetv1.EndpointAddress {
		return &signetv1.EndpointAddress{Address: a, Text: text, HostIp: host, Number: number, EndpointId: id}
	}
	const web = "k8s:app=web;"
	resp, err := r.node.PublishEndpoints(testContext(t), &signetv1.PublishEndpointsRequest{Node: "node-a",
		Put: []*signetv1.EndpointAddress{
			address("10.0.0.1", web, "192.0.2.1", 7, "e"),
			address("10.0.0.256", web, "192.0.2.1", 7, "e"),
			address("10.0.0.0/24", web, "192.0.2.1", 7, "e"),
			address("10.0.0.1/24", web, "192.0.2.1", 7, "e"),
			address("2001:DB8::1", web, "2001:db8::9", 7, "e"),
			address("10.0.0.2/32", "k8s:app=other;", "192.0.2.1", 7, "e"),
			address("10.0.0.3", "k8s:app=web", "192.0.2.1", 7, "e"),
			address("10.0.0.4", web, "", 7, "e"),
			address("10.0.0.5", web, "192.0.2.1", 0, "e"),
			address("10.0.0.6", web, "192.0.2.1", 7, ""),
		}, Withdraw: []string{"10.0.9.0/24", "nonsense", "2001:db8::2"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []codes.Code{0, 3, 0, 3, 0, 9, 3, 3, 3, 3, 0, 3, 0}
	for i, r := range resp.GetResults() {
		if codes.Code(r.GetCode()) != want[i] || (r.GetCode() != 0) != (r.GetMessage() != "") {
			t.Errorf("result %d: %v, want %s", i, r, want[i])
		}
	}
	put := r.lastReq.Put
	if len(put) != 4 || put[0].Address.Mask != nil || !slices.Equal(put[1].Address.Mask, []byte{255, 255, 255, 0}) ||
		put[2].Address.IP != "2001:db8::1" || put[3].Address.IP != "10.0.0.2" || put[3].Address.Mask != nil {
		t.Errorf("the backend got %+v", put)
	}
	if !slices.Equal(r.lastReq.Withdraw, []string{"10.0.9.0/24", "2001:db8::2"}) {
		t.Errorf("the backend withdraws %v", r.lastReq.Withdraw)
	}
}

func TestMetricsNameMethodCodeAndReason(t *testing.T) {
	reg := prometheus.NewRegistry()
	n := newNetwork()
	r := n.startWith(t, "one", server.Config{Registerer: reg})
	_, _ = r.identity.Allocate(testContext(t), allocateReq("a"))
	_, _ = r.identity.Allocate(testContext(t), allocateReq("a", "k8s:a=b"))
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range got {
		for _, m := range family.GetMetric() {
			line := family.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			lines = append(lines, line)
		}
	}
	want := []string{"signet_grpc_refusals_total InvalidArgument empty-set", "signet_grpc_request_seconds Allocate",
		"signet_grpc_requests_total InvalidArgument Allocate", "signet_grpc_requests_total OK Allocate"}
	if !slices.Equal(lines, want) {
		t.Errorf("metrics:\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if _, err := server.New(server.Config{Backend: newMemory(), Registerer: reg}); err == nil {
		t.Error("two servers share one registry's names")
	}
	if _, err := server.New(server.Config{}); err == nil {
		t.Error("a server without a backend")
	}
}

func TestPlainTextOnlyWhereStrangersCannotReach(t *testing.T) {
	s, err := server.New(server.Config{Backend: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(testContext(t))
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Skipf("no TCP here: %v", err)
	}
	defer l.Close()
	var plain *server.PlainTextError
	if err := s.Serve(l); !errors.As(err, &plain) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("serving the world in plain text: %v", err)
	}
}

func TestCallsWithoutADeadlineGetOne(t *testing.T) {
	r := start(t) // its backend refuses calls without a deadline
	if _, err := r.identity.Allocate(context.Background(), allocateReq("a", "k8s:a=b")); err != nil {
		t.Error(err)
	}
	s, err := r.node.Session(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(helloFrame("node-a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Errorf("a frame of a session: %v", err)
	}
	_ = s.CloseSend()
	_, _ = s.Recv()
}

func TestGC_steersTheCollection(t *testing.T) {
	r := start(t)
	admin := signetv1.NewAdminServiceClient(r.conn)
	ask := func(req *signetv1.GCRequest) (*signetv1.GCResponse, error) { return admin.GC(testContext(t), req) }
	if _, err := ask(&signetv1.GCRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no action: %v", err)
	}
	for _, c := range []struct {
		req  *signetv1.GCRequest
		want string
	}{
		{&signetv1.GCRequest{Action: &signetv1.GCRequest_Plan{Plan: &signetv1.GCPlan{}}}, ""},
		{&signetv1.GCRequest{Action: &signetv1.GCRequest_Run{Run: &signetv1.GCRun{ReleaseBrake: true}}}, "swept, released: true"},
		{&signetv1.GCRequest{Action: &signetv1.GCRequest_Pause{Pause: &signetv1.GCPause{By: "ann", Reason: "why"}}}, "paused by ann: why"},
		{&signetv1.GCRequest{Action: &signetv1.GCRequest_Resume{Resume: &signetv1.GCResume{}}}, ""},
	} {
		got, err := ask(c.req)
		if err != nil || got.GetBrake() != c.want || len(got.GetItems()) != 1 {
			t.Errorf("%v: %v %v, want %q", c.req, got, err, c.want)
		}
	}
}
