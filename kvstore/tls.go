// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// TLSError is a file of the TLS configuration that cannot be used.
type TLSError struct {
	File   string
	Reason string
	Err    error
}

// Error implements error.
func (e *TLSError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("TLS file %q: %s: %v", e.File, e.Reason, e.Err)
	}
	return fmt.Sprintf("TLS file %q: %s", e.File, e.Reason)
}

// Unwrap is the error below.
func (e *TLSError) Unwrap() error { return e.Err }

// LoadTLS is the client's side of mutual TLS 1.3 toward etcd: ca is the file
// with the authorities (PEM) that sign etcd's certificate, cert and key those
// of this client. All three are needed; three empty names mean no TLS (nil).
// Certificate and key are read again at each connection, so that a renewed
// pair is used without a restart.
func LoadTLS(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	for name, file := range map[string]string{"the certificate authority": ca, "the certificate": cert, "the key": key} {
		if file == "" {
			return nil, &TLSError{File: file, Reason: name + " is missing; TLS toward etcd is mutual and needs all three files"}
		}
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, &TLSError{File: ca, Reason: "the certificate authority cannot be read", Err: err}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, &TLSError{File: ca, Reason: "it holds no certificate in PEM form"}
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, &TLSError{File: cert, Reason: "certificate and key " + key + " cannot be used", Err: err}
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
	}, nil
}

// EndpointError is an endpoint of etcd that must not be used as it is.
type EndpointError struct {
	Endpoint string
	Reason   string
}

// Error implements error.
func (e *EndpointError) Error() string {
	return fmt.Sprintf("etcd endpoint %q: %s", e.Endpoint, e.Reason)
}

// CheckEndpoints refuses endpoints that would carry plain text off this
// machine, and lists that mix plain text and TLS: the client chooses by the
// first endpoint for all.
func CheckEndpoints(endpoints []string, withTLS bool) error {
	if len(endpoints) == 0 {
		return &EndpointError{Reason: "no endpoint is given; name at least one, such as https://etcd.example:2379"}
	}
	plain := 0
	for _, ep := range endpoints {
		encrypted, local, reason := readEndpoint(ep, withTLS)
		switch {
		case reason != "":
			return &EndpointError{Endpoint: ep, Reason: reason}
		case encrypted && !withTLS:
			return &EndpointError{Endpoint: ep, Reason: "it wants TLS, but no certificate authority, certificate and key are given"}
		case !encrypted && !local:
			return &EndpointError{Endpoint: ep, Reason: "plain text is allowed to loopback addresses and unix sockets only; use https:// with certificate authority, certificate and key"}
		case !encrypted:
			plain++
		}
	}
	if plain != 0 && plain != len(endpoints) {
		return &EndpointError{Endpoint: strings.Join(endpoints, ","), Reason: "the list mixes plain text and TLS; use one of them throughout"}
	}
	return nil
}

// readEndpoint says whether an endpoint is encrypted and whether it is local.
func readEndpoint(ep string, withTLS bool) (encrypted, local bool, reason string) {
	scheme, rest, found := strings.Cut(ep, ":")
	if found && (scheme == "unix" || scheme == "unixs") {
		return scheme == "unixs" || withTLS, true, ""
	}
	host := ep
	encrypted = withTLS
	if strings.HasPrefix(rest, "//") {
		u, err := url.Parse(ep)
		if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return false, false, "it is no URL of a host and a port"
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			return false, false, "the scheme is none of http, https, unix, unixs"
		}
		host, encrypted = u.Host, u.Scheme == "https"
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return false, false, "it names no port"
	}
	ip := net.ParseIP(name)
	return encrypted, name == "localhost" || ip.IsLoopback(), ""
}
