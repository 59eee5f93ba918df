package s3store

import (
	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

var denialCases = []struct {
	answer minio.ErrorResponse
	want   error
}{
	{minio.ErrorResponse{Code: "AccessDenied", Message: "Access Denied because object protected by object lock."}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "AccessDenied", Message: "forbidden by object lock"}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "InvalidRequest", Message: "Object is WORM protected and cannot be overwritten."}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "ObjectLocked", Message: "..."}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "ObjectUnderRetention", Message: "The object is under retention and can't be deleted or modified."}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "RetentionPolicyNotMet"}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "FileImmutable"}, objectstore.ErrLocked},
	{minio.ErrorResponse{Code: "InvalidRequest", Message: "Bucket is missing ObjectLockConfiguration"}, objectstore.ErrNoLock},
	{minio.ErrorResponse{Code: "InvalidRequest", Message: "Bucket is missing Object Lock Configuration"}, objectstore.ErrNoLock},
	{minio.ErrorResponse{Code: "InvalidRequest", Message: "bucket object lock not configured"}, objectstore.ErrNoLock},
	{minio.ErrorResponse{Code: "ObjectLockConfigurationNotFoundError"}, objectstore.ErrNoLock},
	{minio.ErrorResponse{Code: "InvalidArgument", Message: "Invalid version id specified"}, objectstore.ErrNotFound},
	{minio.ErrorResponse{Code: "AccessDenied", Message: "Access Denied."}, nil},
	{minio.ErrorResponse{Code: "InvalidRequest", Message: "Missing required header for this request: Content-MD5"}, nil},
	{minio.ErrorResponse{Code: "InvalidArgument", Message: "Unknown encoding type"}, nil},
}
