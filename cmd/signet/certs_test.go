// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// makeCertificates makes ca.pem and, for each NAME=ROLE, NAME.pem and
// NAME-key.pem: certs NAME=ROLE...
func makeCertificates(ts *testscript.TestScript, _ bool, args []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	ts.Check(err)
	writePEM(ts, "ca.pem", "CERTIFICATE", der)
	for i, arg := range args {
		name, role := cut(ts, arg)
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		ts.Check(err)
		cert := &x509.Certificate{SerialNumber: big.NewInt(int64(i) + 2), Subject: pkix.Name{CommonName: name, Organization: []string{role}},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		der, err := x509.CreateCertificate(rand.Reader, cert, ca, &own.PublicKey, key)
		ts.Check(err)
		writePEM(ts, name+".pem", "CERTIFICATE", der)
		keyDER, err := x509.MarshalECPrivateKey(own)
		ts.Check(err)
		writePEM(ts, name+"-key.pem", "EC PRIVATE KEY", keyDER)
	}
}

func cut(ts *testscript.TestScript, arg string) (name, role string) {
	for i := range arg {
		if arg[i] == '=' {
			return arg[:i], arg[i+1:]
		}
	}
	ts.Fatalf("%q is not NAME=ROLE", arg)
	return "", ""
}

func writePEM(ts *testscript.TestScript, name, kind string, der []byte) {
	ts.Check(os.WriteFile(ts.MkAbs(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
