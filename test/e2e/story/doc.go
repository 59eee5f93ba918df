// Package story is the main job of vmstate as a person would do it, step by step: boot a guest
// whose disk opens only with its own TPM, back it up while it runs, lose it, bring it back from
// the bucket, and see that it is whole. make demo tells the story; the end-to-end tests check it.
//
// It drives kubectl and kubectl vmstate as programs, so that what it proves is what users get.
package story
