package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window"
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

// slotsStatement is the line of take.lua with the most slots for which a ring has room.
const slotsStatement = "local most_slots = 2 ^ 32\n"

// takeScriptFor returns takeScript for logs that need so many slots at most; zero for any number.
// In it, a longer ring is corrupt: it would stop Redis while it is copied.
func takeScriptFor(slots int) string {
	if slots == 0 {
		return takeScript
	}
	return strings.Replace(takeScript, slotsStatement, fmt.Sprintf("local most_slots = %d\n", ringSlots(slots)), 1)
}

// ringSlots returns for how many slots a ring has room at most if its limit needs so many. Debt
// adds up to two for each of 10,000 parts of the window and the time ahead. Then a quarter more.
func ringSlots(slots int) int {
	return (max(slots, window.ExactHits)+2*window.ExactHits+4)*5/4 + 1
}

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
