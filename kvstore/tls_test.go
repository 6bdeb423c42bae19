// SPDX-License-Identifier: Apache-2.0

package kvstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority signs certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	a.cert, a.key = a.issue(t, "ca", true)
	a.pool.AddCert(a.cert)
	return a
}

// issue writes <name>.crt and <name>.key.
func (a *authority) issue(t *testing.T, name string, isCA bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent, signer := a.cert, a.key
	if isCA {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// peerName is the client's name as a server that wants certificates sees it.
func peerName(t *testing.T, a *authority, client *tls.Config, maxVersion uint16) (string, error) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.file("server.crt"), a.file("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MaxVersion: maxVersion,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			names <- ""
			return
		}
		defer conn.Close()
		c := conn.(*tls.Conn)
		if c.Handshake() != nil {
			names <- ""
			return
		}
		names <- c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return <-names, nil
}

func TestLoadTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, "server", false)
	a.issue(t, "operator", false)
	conf, err := LoadTLS(a.file("ca.crt"), a.file("operator.crt"), a.file("operator.key"))
	if err != nil {
		t.Fatal(err)
	}
	if name, err := peerName(t, a, conf, 0); err != nil || name != "operator" {
		t.Errorf("the server sees %q, %v", name, err)
	}
	if name, err := peerName(t, a, conf, tls.VersionTLS12); err == nil {
		t.Errorf("TLS 1.2 is spoken with %q", name)
	}
	// A renewed pair under the same names is used at the next connection.
	a.issue(t, "renewed", false)
	for _, ext := range []string{".crt", ".key"} {
		if err := os.Rename(a.file("renewed"+ext), a.file("operator"+ext)); err != nil {
			t.Fatal(err)
		}
	}
	if name, err := peerName(t, a, conf, 0); err != nil || name != "renewed" {
		t.Errorf("after the renewal the server sees %q, %v", name, err)
	}
}

func TestLoadTLSRefuses(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, "x", false)
	a.issue(t, "y", false)
	if conf, err := LoadTLS("", "", ""); conf != nil || err != nil {
		t.Errorf("no files: %v, %v", conf, err)
	}
	for name, f := range map[string][3]string{
		"no authority":          {"", a.file("x.crt"), a.file("x.key")},
		"no certificate":        {a.file("ca.crt"), "", a.file("x.key")},
		"no key":                {a.file("ca.crt"), a.file("x.crt"), ""},
		"absent authority":      {a.file("absent"), a.file("x.crt"), a.file("x.key")},
		"authority without PEM": {a.file("x.key"), a.file("x.crt"), a.file("x.key")},
		"another's key":         {a.file("ca.crt"), a.file("x.crt"), a.file("y.key")},
	} {
		var want *TLSError
		if conf, err := LoadTLS(f[0], f[1], f[2]); !errors.As(err, &want) {
			t.Errorf("%s: %v, %v", name, conf, err)
		}
	}
}
