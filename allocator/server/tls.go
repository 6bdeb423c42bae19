// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// ServerCredentials reads a mutual TLS 1.3 configuration from PEM files, for
// serving and for forwarding to the leader alike: the authority that signed
// everybody's certificate, and the replica's own certificate and key. Its
// subject's organization has to be signet:operator (RoleOperator), and its
// names have to cover the address that other replicas use. The certificate
// and key are read again on each handshake, so that renewed ones are used.
func ServerCredentials(ca, cert, key string) (*tls.Config, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the certificate authority: %s holds no PEM certificate", ca)
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("read the certificate and key: %w", err)
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		ClientAuth:           tls.RequireAndVerifyClientCert,
		ClientCAs:            pool,
		RootCAs:              pool,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
	}, nil
}

// perListener is TLS on TCP and plain text on unix sockets, whose file
// permissions say who may connect.
type perListener struct {
	credentials.TransportCredentials // TLS
	plain                            credentials.TransportCredentials
}

func newCredentials(cfg *tls.Config) credentials.TransportCredentials {
	if cfg == nil {
		return insecure.NewCredentials()
	}
	return &perListener{TransportCredentials: credentials.NewTLS(cfg), plain: insecure.NewCredentials()}
}

func (p *perListener) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, ok := c.LocalAddr().(*net.UnixAddr); ok {
		return p.plain.ServerHandshake(c)
	}
	return p.TransportCredentials.ServerHandshake(c)
}

func (p *perListener) Clone() credentials.TransportCredentials {
	return &perListener{TransportCredentials: p.TransportCredentials.Clone(), plain: p.plain.Clone()}
}
