package simulate

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// A luaHost runs the scripts of redisstore as Redis runs them: one at a time, on the data of one
// server. It has what these scripts use of Redis's Lua: redis.call, redis.pcall, and the library struct.
type luaHost struct {
	state *lua.LState
	data  *data // of the server whose script runs
	known map[string]*lua.FunctionProto
}

func newLuaHost() *luaHost {
	h := &luaHost{
		state: lua.NewState(lua.Options{RegistrySize: 1 << 14, CallStackSize: 256, SkipOpenLibs: true}),
		known: make(map[string]*lua.FunctionProto),
	}
	L := h.state
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString, lua.OpenMath} {
		L.Push(L.NewFunction(open))
		L.Call(0, 0)
	}
	L.GetGlobal("string").(*lua.LTable).RawSetString("find", L.NewFunction(stringFind))
	redis := L.NewTable()
	redis.RawSetString("call", L.NewFunction(func(L *lua.LState) int { return h.call(L, true) }))
	redis.RawSetString("pcall", L.NewFunction(func(L *lua.LState) int { return h.call(L, false) }))
	L.SetGlobal("redis", redis)
	structs := L.NewTable()
	structs.RawSetString("pack", L.NewFunction(structPack))
	structs.RawSetString("unpack", L.NewFunction(structUnpack))
	L.SetGlobal("struct", structs)
	return h
}

// sha returns the name that Redis gives a script.
func sha(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// compile compiles a script once.
func (h *luaHost) compile(text string) *lua.FunctionProto {
	if p, ok := h.known[text]; ok {
		return p
	}
	chunk, err := parse.Parse(strings.NewReader(text), "script")
	if err != nil {
		panic(err)
	}
	p, err := lua.Compile(inOrder(chunk), "script")
	if err != nil {
		panic(err)
	}
	h.known[text] = p
	return p
}

// inOrder makes assignments of several values evaluate all of them before the first is assigned, as Lua does.
// The library assigns the first too early: "a, b = a % 8, a % 16" uses the new a.
func inOrder(block []ast.Stmt) []ast.Stmt {
	for i, s := range block {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if len(s.Lhs) < 2 || len(s.Rhs) < 2 {
				continue
			}
			values := &ast.LocalAssignStmt{Exprs: s.Rhs}
			set := &ast.AssignStmt{Lhs: s.Lhs}
			for n := range s.Lhs {
				name := fmt.Sprintf("value %d", n)
				values.Names = append(values.Names, name)
				set.Rhs = append(set.Rhs, &ast.IdentExpr{Value: name})
			}
			block[i] = &ast.DoBlockStmt{Stmts: []ast.Stmt{values, set}}
		case *ast.LocalAssignStmt:
			for _, e := range s.Exprs {
				if f, ok := e.(*ast.FunctionExpr); ok {
					f.Stmts = inOrder(f.Stmts)
				}
			}
		case *ast.FuncDefStmt:
			s.Func.Stmts = inOrder(s.Func.Stmts)
		case *ast.DoBlockStmt:
			s.Stmts = inOrder(s.Stmts)
		case *ast.WhileStmt:
			s.Stmts = inOrder(s.Stmts)
		case *ast.RepeatStmt:
			s.Stmts = inOrder(s.Stmts)
		case *ast.NumberForStmt:
			s.Stmts = inOrder(s.Stmts)
		case *ast.GenericForStmt:
			s.Stmts = inOrder(s.Stmts)
		case *ast.IfStmt:
			s.Then, s.Else = inOrder(s.Then), inOrder(s.Else)
		}
	}
	return block
}

// run runs a script on the data of a server. The reply is an int64, a string, a []any of those, or an error.
func (h *luaHost) run(d *data, text string, keys, argv []string) any {
	L := h.state
	h.data = d
	L.SetGlobal("KEYS", luaList(L, keys))
	L.SetGlobal("ARGV", luaList(L, argv))
	L.Push(L.NewFunctionFromProto(h.compile(text)))
	if err := L.PCall(0, 1, nil); err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	v := L.Get(-1)
	L.Pop(1)
	return reply(v)
}

// stringFind is string.find without patterns, which the scripts do not use. That of the library fails if the
// search begins behind the text.
func stringFind(L *lua.LState) int {
	text, part := L.CheckString(1), L.CheckString(2)
	if !L.ToBool(4) {
		L.RaiseError("a script uses a pattern")
	}
	from := min(max(L.OptInt(3, 1)-1, 0), len(text))
	at := strings.Index(text[from:], part)
	if at < 0 {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(lua.LNumber(from + at + 1))
	L.Push(lua.LNumber(from + at + len(part)))
	return 2
}

func luaList(L *lua.LState, texts []string) *lua.LTable {
	t := L.CreateTable(len(texts), 0)
	for i, text := range texts {
		t.RawSetInt(i+1, lua.LString(text))
	}
	return t
}

// reply converts what a script returns as Redis does.
func reply(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return fmt.Errorf("%s", string(text))
		}
		all := make([]any, 0, v.Len())
		for i := 1; i <= v.Len(); i++ {
			all = append(all, reply(v.RawGetInt(i)))
		}
		return all
	}
	return nil
}

// call runs one command of a script.
func (h *luaHost) call(L *lua.LState, raises bool) int {
	var inline [8]string
	args := inline[:0]
	for i := 1; i <= L.GetTop(); i++ {
		switch v := L.Get(i).(type) {
		case lua.LNumber:
			args = append(args, formatNumber(float64(v)))
		default:
			args = append(args, v.String())
		}
	}
	switch v := h.data.do(args).(type) {
	case nil:
		L.Push(lua.LFalse)
	case int64:
		L.Push(lua.LNumber(v))
	case string:
		L.Push(lua.LString(v))
	case []string:
		L.Push(luaList(L, v))
	case error:
		if raises {
			L.RaiseError("%s", v.Error())
		}
		t := L.NewTable()
		t.RawSetString("err", lua.LString(v.Error()))
		L.Push(t)
	}
	return 1
}

// formatNumber writes a number as Redis does for its commands.
func formatNumber(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

// A field is one item of a format of the library struct: an unsigned big-endian number, a byte, text or padding.
type field struct {
	kind byte // I, c or x
	size int
}

var formats = make(map[string][]field)

// fieldsOf reads a format. All formats of the scripts are big-endian.
func fieldsOf(format string) []field {
	if f, ok := formats[format]; ok {
		return f
	}
	var all []field
	for i := 0; i < len(format); i++ {
		c := format[i]
		size, digits := 0, false
		for i+1 < len(format) && format[i+1] >= '0' && format[i+1] <= '9' {
			i++
			size, digits = size*10+int(format[i]-'0'), true
		}
		switch c {
		case '>':
		case 'B':
			all = append(all, field{'I', 1})
		case 'I':
			all = append(all, field{'I', size})
		case 'x':
			all = append(all, field{'x', 1})
		case 'c':
			if !digits {
				size = 1
			}
			all = append(all, field{'c', size})
		default:
			panic("struct: the format " + format + " has an unknown item")
		}
	}
	formats[format] = all
	return all
}

func structPack(L *lua.LState) int {
	var buf [256]byte
	b := buf[:0]
	arg := 2
	for _, f := range fieldsOf(L.CheckString(1)) {
		switch f.kind {
		case 'x':
			b = append(b, 0)
			continue
		case 'c':
			text := L.CheckString(arg)
			if f.size > 0 {
				text = text[:f.size]
			}
			b = append(b, text...)
		default:
			f64 := float64(L.CheckNumber(arg))
			var n uint64
			if f64 < 0 {
				n = uint64(int64(f64))
			} else {
				n = uint64(f64)
			}
			var word [8]byte
			binary.BigEndian.PutUint64(word[:], n)
			b = append(b, word[8-f.size:]...)
		}
		arg++
	}
	L.Push(lua.LString(b))
	return 1
}

func structUnpack(L *lua.LState) int {
	format, text := L.CheckString(1), L.CheckString(2)
	at := L.OptInt(3, 1) - 1
	last := 0
	fields := fieldsOf(format)
	n := 0
	for i, f := range fields {
		size := f.size
		if f.kind == 'c' && size == 0 {
			size = last
			if i == 0 {
				L.RaiseError("format 'c0' needs a previous size")
			}
		}
		if at < 0 || at+size > len(text) {
			L.RaiseError("data string too short")
		}
		switch f.kind {
		case 'x':
		case 'c':
			L.Push(lua.LString(text[at : at+size]))
			n++
		default:
			var v uint64
			for _, c := range []byte(text[at : at+size]) {
				v = v<<8 | uint64(c)
			}
			last = int(v)
			L.Push(lua.LNumber(v))
			n++
		}
		at += size
	}
	L.Push(lua.LNumber(at + 1))
	return n + 1
}
