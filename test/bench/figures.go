package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// figures are everything that was measured, by name, a value a round.
type figures struct {
	names  []string // in the order in which they came
	values map[string][]float64
	units  map[string]string
}

func newFigures() *figures {
	return &figures{values: map[string][]float64{}, units: map[string]string{}}
}

func (f *figures) add(name string, value float64, unit string) {
	if _, known := f.values[name]; !known {
		f.names = append(f.names, name)
		f.units[name] = unit
	}
	f.values[name] = append(f.values[name], value)
}

// median of a figure; of an even number the lower one of the middle.
func (f *figures) median(name string) float64 {
	sorted := slices.Sorted(slices.Values(f.values[name]))
	return sorted[(len(sorted)-1)/2]
}

// print prints the medians, then what the other engines cost as multiples of ours.
func (f *figures) print(w io.Writer) {
	for _, name := range f.names {
		fmt.Fprintf(w, "%s %.3f %s\n", name, f.median(name), f.units[name])
	}
	for _, name := range f.names {
		peer, rest, _ := strings.Cut(name, "_")
		ours, ok := f.values["vmstate_"+rest]
		if peer == "vmstate" || !ok || len(ours) == 0 || !compared(rest) || f.median("vmstate_"+rest) == 0 {
			continue
		}
		fmt.Fprintf(w, "ratio_%s %.2f x\n", name, f.median(name)/f.median("vmstate_"+rest))
	}
}

// compared tells whether a figure is one that says something as a ratio.
func compared(name string) bool {
	for _, what := range []string{"_cpu", "_stored", "_put", "_get", "_received"} {
		if strings.HasSuffix(name, what) {
			return true
		}
	}
	return false
}
