// Package figures turns the samples of a program's rounds into medians, ratios and
// the heads of Markdown tables.
package figures
