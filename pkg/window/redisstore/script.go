package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed take.lua
	takeText string
	//go:embed look.lua
	lookText string
	//go:embed record.lua
	recordText string
	//go:embed rest.lua
	restText string
	//go:embed waits.lua
	waitsText string

	//go:embed holds.lua
	holdsText string
	//go:embed streams.lua
	streamsText string

	//go:embed receipts.lua
	receiptsText string

	//go:embed takeback.lua
	takeBackScript string
)

// takeScript is take.lua, with the files that it includes.
var takeScript = include(takeText, map[string]string{
	"holds.lua":    holdsText,
	"look.lua":     lookText,
	"receipts.lua": receiptsText,
	"record.lua":   recordText,
	"rest.lua":     restText,
	"waits.lua":    waitsText,
})

// streamsScript is streams.lua, with the file that it includes.
var streamsScript = include(streamsText, map[string]string{"holds.lua": holdsText})

// include replaces each line "-- include NAME" of a script by the file of that name. Every
// file must be included once; otherwise it panics, because the program was built wrong.
func include(text string, files map[string]string) string {
	for name, file := range files {
		line := "-- include " + name + "\n"
		if strings.Count(text, line) != 1 {
			panic(fmt.Sprintf("the script has %d lines %q, want 1", strings.Count(text, line), line))
		}
		text = strings.Replace(text, line, file, 1)
	}
	return text
}

// run calls a script, by its text if the server does not know it, and returns the reply.
func (of *script) run(ctx context.Context, client Client, keys []string, argv ...any) (reply any, err error) {
	args := []any{"evalsha", of.sha, len(keys)}
	for _, key := range keys {
		args = append(args, key)
	}
	cmd := newOnce(ctx, append(args, argv...))
	err = client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", of.text
		cmd = newOnce(ctx, append(args, argv...))
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}
