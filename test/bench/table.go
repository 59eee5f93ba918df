package main

import (
	"fmt"
	"io"
)

// goal is a row of the table in docs/performance.md.
type goal struct {
	number, text, figure string
	format               string
}

var goals = []goal{
	{"1", "full: at most 14 CPU-s", "full_cpu", "%.1f s"},
	{"1", "full: at most 1.30 GB stored", "full_stored", "%.0f MB"},
	{"2", "unchanged: at most 1.5 CPU-s", "unchanged_cpu", "%.2f s"},
	{"2", "unchanged: at most 100 KB stored", "unchanged_stored", "%.3f MB"},
	{"2", "unchanged: at most 5 PUTs", "tls_unchanged_put", "%.0f"},
	{"2", "unchanged: the index read, to be stated", "tls_unchanged_received", "%.1f MB"},
	{"3", "1 % scattered: at most 2.0 CPU-s", "scatter_cpu", "%.2f s"},
	{"3", "1 % scattered: at most 25 MB stored", "scatter_stored", "%.1f MB"},
	{"–", "1 % clustered", "cluster_cpu", "%.2f s"},
	{"–", "1 % clustered", "cluster_stored", "%.1f MB"},
	{"4", "four guest days: at most 540 MB stored", "days_stored", "%.0f MB"},
	{"–", "four guest days", "days_cpu", "%.1f s"},
	{"5", "restore: at most 5.5 CPU-s", "restore_cpu", "%.1f s"},
	{"5", "restore: at most 1.02 x the blocks of the source", "restore_blocks", "%.3f x"},
	{"5", "in place: at most 3.5 CPU-s", "inplace_cpu", "%.1f s"},
	{"5", "in place: at most 1.05 x the 43 MB that changed", "tls_inplace_received", "%.1f MB"},
	{"–", "in place, back to the older backup", "back_cpu", "%.1f s"},
	{"–", "in place, back: received", "tls_back_received", "%.0f MB"},
	{"6", "16 TiB sparse: at most 192 MiB, full", "memory_full_rss", "%.0f MiB"},
	{"6", "16 TiB sparse, unchanged", "memory_unchanged_rss", "%.0f MiB"},
	{"6", "16 TiB sparse, restore", "memory_restore_rss", "%.0f MiB"},
	{"6", "16 TiB sparse, in place", "memory_inplace_rss", "%.0f MiB"},
	{"6", "full of vmgen-1: at most 192 MiB", "full_rss", "%.0f MiB"},
	{"7", "upload over TLS: at least 1.4 GB/s per core", "tls_upload_rate", "%.2f GB/s"},
	{"7", "full over TLS: PUTs, at most 1 per 32 MiB and 5, and 1 a minute", "tls_full_put", "%.0f"},
	{"7", "full over TLS: no LIST", "tls_full_list", "%.0f"},
	{"7", "restore over TLS: no LIST", "tls_restore_list", "%.0f"},
	{"–", "full over TLS", "tls_full_cpu", "%.1f s"},
	{"–", "restore over TLS", "tls_restore_cpu", "%.1f s"},
	{"–", "restore over TLS: GETs", "tls_restore_get", "%.0f"},
	{"10", "verify over TLS, no identity: at least 1.2 GB/s per core", "tls_verify_rate", "%.2f GB/s"},
	{"–", "30 increments over TLS", "tls_chain_cpu", "%.1f s"},
	{"–", "30 increments over TLS, stored", "tls_chain_stored", "%.0f MB"},
	{"–", "restore of the last", "tls_chain_restore_cpu", "%.1f s"},
	{"–", "restore of the last: GETs", "tls_chain_restore_get", "%.0f"},
	{"–", "restore of the last: received", "tls_chain_restore_received", "%.0f MB"},
}

// table prints the goals with what was measured, as Markdown.
func (f *figures) table(w io.Writer) {
	for _, g := range goals {
		fmt.Fprintf(w, "| %s | %s | `%s` |", g.number, g.text, g.figure)
		for _, engine := range engineNames {
			cell := "–"
			if name := engine + "_" + g.figure; len(f.values[name]) > 0 {
				cell = fmt.Sprintf(g.format, f.median(name))
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintln(w)
	}
}
