// Package figures turns the samples of a program's rounds into medians, ratios, the heads of
// Markdown tables, and pictures.
package figures
