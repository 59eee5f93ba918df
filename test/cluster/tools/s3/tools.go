//go:build tools

// Package s3 pins the S3 server of the test cluster.
package s3

import _ "github.com/versity/versitygw/cmd/versitygw"
