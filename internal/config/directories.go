package config

import (
	"fmt"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// CheckDirectories reports directories of the settings that do not exist, although serving
// needs them: those of unix sockets and of the snapshot. It changes nothing. Each error is a
// [strict.Problem].
func CheckDirectories(s settings.Settings) error {
	var problems strict.Problems
	for _, a := range s.GRPC.Address {
		if path, ok := a.Socket(); ok {
			if err := files.CheckDirectory(path); err != nil {
				problems = append(problems, strict.Problem{Path: "grpc.address", Message: fmt.Sprintf("cannot listen on %s: %s", a, err)})
			}
		}
	}
	if file := s.Store.Memory.Snapshot; file != "" && s.Store.Type == settings.StoreMemory {
		if err := files.CheckDirectory(file); err != nil {
			problems = append(problems, strict.Problem{Path: "store.memory.snapshot", Message: err.Error()})
		}
	}
	if problems == nil {
		return nil
	}
	return problems
}
