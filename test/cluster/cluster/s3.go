package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/vmstate/vmstate/test/cluster/node"
)

// The S3 server, reached under the same address from the host, the node and pods. Its certificate is signed by an
// authority of its own: see S3CA.
const (
	S3Endpoint  = "https://" + s3Address
	S3AccessKey = "vmstate-test"
	S3SecretKey = "vmstate-test-secret"
	S3Region    = "us-east-1"
	// S3Bucket is there from the start, without object lock and versions. The server can make others with both.
	S3Bucket = "vmstate"

	s3Address = node.IP + ":7480"
)

// S3CA is the certificate of the authority to trust for the S3 server.
func (c *Cluster) S3CA() string { return c.pki("s3-ca.crt") }

func (c *Cluster) upS3() error {
	data, versions := c.dir.Path("s3", "data"), c.dir.Path("s3", "versions")
	for _, dir := range []string{data, versions} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := node.StartService(c.dir, node.Service{
		Name: "versitygw",
		Argv: []string{c.binary("versitygw"), "--port=" + s3Address, "--region=" + S3Region,
			"--cert=" + c.pki("s3.crt"), "--key=" + c.pki("s3.key"), "posix", "--versioning-dir=" + versions, data},
		Env: []string{"ROOT_ACCESS_KEY=" + S3AccessKey, "ROOT_SECRET_KEY=" + S3SecretKey},
	}); err != nil {
		return err
	}
	if err := until(30*time.Second, "the S3 server", func() (bool, error) {
		conn, err := net.DialTimeout("tcp", s3Address, time.Second)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	}); err != nil {
		return err
	}
	return c.makeBucket(S3Bucket)
}

func (c *Cluster) makeBucket(name string) error {
	trusted, err := trusting(c.S3CA())
	if err != nil {
		return err
	}
	client, err := minio.New(s3Address, &minio.Options{
		Creds: credentials.NewStaticV4(S3AccessKey, S3SecretKey, ""), Secure: true, Region: S3Region, Transport: trusted.Transport,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.MakeBucket(ctx, name, minio.MakeBucketOptions{Region: S3Region}); err != nil {
		return fmt.Errorf("make bucket %q: %w", name, err)
	}
	return nil
}
