package script

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by SHA-1; nothing is secured by it
	_ "embed"
	"encoding/hex"
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
	//go:embed reserves.lua
	reservesText string
	//go:embed inflight.lua
	inFlightText string
	//go:embed adds.lua
	addsText string
	//go:embed large.lua
	largeText string
	//go:embed falls.lua
	fallsText string
	//go:embed ends.lua
	endsText string
	//go:embed settle.lua
	settleText string
	//go:embed streams.lua
	streamsText string

	//go:embed oncerecords.lua
	onceRecordsText string

	//go:embed takeback.lua
	takeBackText string
	//go:embed inspect.lua
	inspectText string
	//go:embed instances.lua
	instancesText string
	//go:embed document.lua
	documentText string
)

// The scripts.
var (
	Take      = New(takeScript)
	TakeBack  = New(takeBackText)
	Streams   = New(include(streamsText, map[string]string{"holds.lua": holdsScript, "adds.lua": addsText, "ends.lua": endsText}))
	Logs      = New(inspectText)
	Instances = New(instancesText)
	Document  = New(documentText)
)

// A Script is a text and the name under which Redis caches it.
type Script struct{ Text, SHA string }

// New returns the script of a text.
func New(text string) Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// A Client sends one command and waits for its reply.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// holdsScript is holds.lua, with the file that it includes.
var holdsScript = include(holdsText, map[string]string{"large.lua": largeText})

// takeScript is take.lua, with the files that it includes.
var takeScript = include(takeText, map[string]string{
	"adds.lua":        addsText,
	"holds.lua":       holdsScript,
	"falls.lua":       fallsText,
	"inflight.lua":    include(inFlightText, map[string]string{"falls.lua": fallsText, "reserves.lua": reservesText}),
	"reserves.lua":    reservesText,
	"look.lua":        lookText,
	"oncerecords.lua": onceRecordsText,
	"record.lua":      recordText,
	"rest.lua":        restText,
	"settle.lua":      include(settleText, map[string]string{"holds.lua": holdsScript, "adds.lua": addsText, "ends.lua": endsText}),
	"waits.lua":       waitsText,
})

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

// Run calls a script, by its text if the server does not know it, and returns the reply.
func (of *Script) Run(ctx context.Context, client Client, keys []string, argv ...any) (reply any, err error) {
	args := []any{"evalsha", of.SHA, len(keys)}
	for _, key := range keys {
		args = append(args, key)
	}
	cmd := NewCommand(ctx, append(args, argv...))
	err = client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", of.Text
		cmd = NewCommand(ctx, append(args, argv...))
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A Command is one that go-redis must not send again by itself, whatever the client's
// MaxRetries or MaxRedirects are. The first may have charged already. go-redis still
// follows redirections of a cluster, because a node that redirects has run nothing.
type Command struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (Command) NoRetry() bool { return true }

// NewCommand returns the command of a call of a script.
func NewCommand(ctx context.Context, args []any) *Command {
	cmd := &Command{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3) // EVALSHA sha n key: what a cluster client routes by
	return cmd
}
