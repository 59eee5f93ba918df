module github.com/vmstate/vmstate/test/guest

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/go-tpm v0.9.8
	golang.org/x/sys v0.50.0
)
