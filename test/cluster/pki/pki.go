// Package pki makes the certificates of the test cluster: authorities, serving and client certificates, and the
// kubeconfigs that use them.
//
// Keys are ECDSA P-256 and everything is valid for one year from an hour before it is made, so that a clock that is
// set back a little does not break a running cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validity = 365 * 24 * time.Hour

// Authority signs certificates. The zero value is not usable: get one from NewAuthority.
type Authority struct {
	cert *x509.Certificate
	der  []byte
	key  *ecdsa.PrivateKey
}

// Leaf says what a signed certificate is for. A leaf with Hosts is a serving certificate, one without a client's.
type Leaf struct {
	// CommonName is the user name of a client certificate.
	CommonName string
	// Organizations are the groups of a client certificate.
	Organizations []string
	// Hosts are DNS names and IP addresses in text form.
	Hosts []string
}

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Cert, Key []byte
}

// NewAuthority makes a self-signed authority.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of %q: %w", commonName, err)
	}
	template, err := template(pkix.Name{CommonName: commonName})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign %q: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", commonName, err)
	}
	return &Authority{cert: cert, der: der, key: key}, nil
}

// Pair is the authority's own certificate and key.
func (a *Authority) Pair() (Pair, error) { return encode(a.der, a.key) }

// Issue signs a certificate for a fresh key.
func (a *Authority) Issue(leaf Leaf) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate key of %q: %w", leaf.CommonName, err)
	}
	template, err := template(pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations})
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, h := range leaf.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign %q: %w", leaf.CommonName, err)
	}
	return encode(der, key)
}

// Write puts the pair into dir as NAME.crt and NAME.key, the key readable by its owner only.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600)
}

// Kubeconfig is a kubeconfig, as JSON, that reaches server as the pair's user and trusts ca.
func Kubeconfig(server string, ca []byte, user Pair) ([]byte, error) {
	type named map[string]any
	return json.MarshalIndent(named{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "vmstate-test",
		"clusters":        []named{{"name": "vmstate-test", "cluster": named{"server": server, "certificate-authority-data": ca}}},
		"users":           []named{{"name": "user", "user": named{"client-certificate-data": user.Cert, "client-key-data": user.Key}}},
		"contexts":        []named{{"name": "vmstate-test", "context": named{"cluster": "vmstate-test", "user": "user"}}},
	}, "", "  ")
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choose serial: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
	}, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}, nil
}
