// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/signet-identity/signet/allocator/server"
	signetv1 "github.com/signet-identity/signet/proto/signet/v1"
)

// authority signs certificates into files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), next: 1}
	a.key = a.newKey()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	a.cert = a.write("ca", template, template, a.key)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name string, template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.file(name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert
}

// issue makes a certificate for role and returns the mutual configuration.
func (a *authority) issue(name, role string) *tls.Config {
	a.t.Helper()
	a.next++
	subject := pkix.Name{CommonName: name}
	if role != "" {
		subject.Organization = []string{role}
	}
	a.write(name, &x509.Certificate{SerialNumber: big.NewInt(a.next), Subject: subject, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, a.cert, a.newKey())
	cfg, err := server.ServerCredentials(a.file("ca.crt"), a.file(name+".crt"), a.file(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return cfg
}

// tlsReplica serves on loopback with TLS and on a unix socket without.
type tlsReplica struct {
	*memory
	address, socket string
}

func startTLS(t *testing.T, cfg *tls.Config) *tlsReplica {
	t.Helper()
	r := &tlsReplica{memory: newMemory(), socket: filepath.Join(t.TempDir(), "s")}
	s, err := server.New(server.Config{Backend: r.memory, TLS: cfg})
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	r.address = tcp.Addr().String()
	done := make(chan error, 1)
	go func() { done <- s.Serve(tcp, unix) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Stop(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func connect(t *testing.T, target string, creds credentials.TransportCredentials) signetv1.IdentityServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return signetv1.NewIdentityServiceClient(conn)
}

func TestCertificatesDecideWhatACallerMay(t *testing.T) {
	ca := newAuthority(t)
	r := startTLS(t, ca.issue("op-1", "signet:operator"))
	over := func(name, role string) signetv1.IdentityServiceClient {
		return connect(t, r.address, credentials.NewTLS(ca.issue(name, role)))
	}
	cases := []struct {
		name   string
		client signetv1.IdentityServiceClient
		holder string
		want   codes.Code
	}{
		{"operator for a node", over("op-2", "signet:operator"), "node-a", codes.OK},
		{"node for itself", over("node-a", "signet:node"), "node-a", codes.OK},
		{"node for its pods", over("node-a", "signet:node"), "k8s.node-a", codes.OK},
		{"node for another", over("node-b", "signet:node"), "node-a", codes.PermissionDenied},
		{"node for a pin", over("node-b", "signet:node"), "pin-a", codes.PermissionDenied},
		{"client for a pin", over("ci", "signet:client"), "pin-a", codes.OK},
		{"client without a role", over("ci", ""), "pin-a", codes.OK},
		{"client for a node", over("node-c", "signet:client"), "node-c", codes.PermissionDenied},
		{"unix socket", connect(t, "unix://"+r.socket, insecure.NewCredentials()), "node-a", codes.OK},
		{"plain text over TCP", connect(t, r.address, insecure.NewCredentials()), "node-a", codes.Unavailable},
		{"a stranger's certificate", connect(t, r.address, credentials.NewTLS(newAuthority(t).issue("op-1", "signet:operator"))), "node-a", codes.Unavailable},
	}
	for _, c := range cases {
		if _, err := c.client.Allocate(testContext(t), allocateReq(c.holder, "k8s:app=web")); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	forged := metadata.AppendToOutgoingContext(testContext(t), "signet-forwarded", "1", "signet-caller-name-bin", "op-1",
		"signet-caller-role-bin", "signet:operator")
	if _, err := over("node-b", "signet:node").Allocate(forged, allocateReq("node-a", "k8s:app=web")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a node that pretends to forward for an operator: %v", err)
	}
	before := r.count("allocate")
	if _, err := over("ci", "").GetIdentity(testContext(t), &signetv1.GetIdentityRequest{Labels: []string{"k8s:app=web"}}); err != nil || before == 0 {
		t.Errorf("a client reads: %v", err)
	}
}

func TestFollowerForwardsOverTLSForItsCaller(t *testing.T) {
	ca := newAuthority(t)
	leader := startTLS(t, ca.issue("op-1", "signet:operator"))
	follower := startTLS(t, ca.issue("op-2", "signet:operator"))
	follower.set(func(m *memory) { m.self, m.leader = false, leader.address })
	node := connect(t, follower.address, credentials.NewTLS(ca.issue("node-a", "signet:node")))
	if _, err := node.Allocate(testContext(t), allocateReq("node-a", "k8s:app=web")); err != nil {
		t.Errorf("forwarded for the node itself: %v", err)
	}
	if _, err := node.Allocate(testContext(t), allocateReq("node-b", "k8s:app=web")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("for another node: %v", err)
	}
	_, err := node.BatchAllocate(testContext(t), &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{allocateReq("node-a", "k8s:app=db")}})
	if err != nil || leader.count("allocate") != 2 || follower.count("allocate") != 0 {
		t.Errorf("%d at the leader, %d at the follower, %v", leader.count("allocate"), follower.count("allocate"), err)
	}
	batch, err := node.BatchAllocate(testContext(t), &signetv1.BatchAllocateRequest{Items: []*signetv1.AllocateRequest{allocateReq("node-b", "k8s:app=db")}})
	if err != nil || codes.Code(batch.GetResults()[0].GetError().GetCode()) != codes.PermissionDenied {
		t.Errorf("a batch keeps the caller's role over the hop: %v, %v", batch, err)
	}
}

func TestServerCredentialsNameTheFileAtFault(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("op", "")
	if err := os.WriteFile(ca.file("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range [][3]string{{"none", "op.crt", "op.key"}, {"empty", "op.crt", "op.key"}, {"ca.crt", "empty", "op.key"}, {"ca.crt", "op.crt", "ca.key"}} {
		if _, err := server.ServerCredentials(ca.file(f[0]), ca.file(f[1]), ca.file(f[2])); err == nil {
			t.Errorf("%v was taken", f)
		}
	}
}
