//go:build !linux

package dirstore

import "errors"

func publish(path string, body []byte) error {
	return publishNamed(path, body, func(string, string) error {
		return errors.New("this file system has no hard links, so nothing can be created without the risk of overwriting")
	})
}
