package wire

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of google.protobuf.Struct and the messages in it.
const (
	structFields protowire.Number = 1
	mapKey       protowire.Number = 1
	mapValue     protowire.Number = 2
	valueNull    protowire.Number = 1
	valueNumber  protowire.Number = 2
	valueText    protowire.Number = 3
	valueBool    protowire.Number = 4
	valueStruct  protowire.Number = 5
	valueList    protowire.Number = 6
	listValues   protowire.Number = 1
)

// MaxDepth bounds how deep metadata is nested: readers in C++ refuse a message
// that is nested a hundred deep, and one mapping in another is three of these.
// What is deeper is null.
const MaxDepth = 20

// AppendEntry appends an entry of a Struct, whose Value is what value appends.
func AppendEntry(b []byte, key string, value func([]byte) []byte) []byte {
	return AppendMessage(b, structFields, func(b []byte) []byte {
		return AppendMessage(AppendAnyText(b, mapKey, key), mapValue, value)
	})
}

// AppendTextEntry appends an entry of a Struct that is a text.
func AppendTextEntry(b []byte, key, text string) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return AppendTextValue(b, text) })
}

// AppendNumberEntry appends an entry of a Struct that is a number.
func AppendNumberEntry(b []byte, key string, n float64) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return appendFloat(b, n) })
}

// AppendBoolEntry appends an entry of a Struct that is true or false.
func AppendBoolEntry(b []byte, key string, value bool) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return appendBool(b, value) })
}

// AppendValueEntry appends an entry of a Struct with a value of the kinds that
// encoding/json decodes into an any. Any other value becomes null, and so does what is
// nested deeper than [MaxDepth].
func AppendValueEntry(b []byte, key string, value any) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return appendValue(b, value, 1) })
}

// AppendStructEntry appends an entry of a Struct that is one, whose entries write
// appends.
func AppendStructEntry(b []byte, key string, write func([]byte) []byte) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return AppendMessage(b, valueStruct, write) })
}

// AppendTextValue appends the field of a Value that is a text. An empty one is a
// value of the kind text, an absent one of no kind at all.
func AppendTextValue(b []byte, text string) []byte { return AppendAnyText(b, valueText, text) }

// AppendStructValue appends the field of a Value that is a Struct.
func AppendStructValue(b []byte, write func([]byte) []byte) []byte {
	return AppendMessage(b, valueStruct, write)
}

// AppendListValue appends the field of a Value that is a list of what write
// appends with [AppendItem].
func AppendListValue(b []byte, write func([]byte) []byte) []byte {
	return AppendMessage(b, valueList, write)
}

// AppendItem appends an item of a list, which is the Value that write appends.
func AppendItem(b []byte, write func([]byte) []byte) []byte {
	return AppendMessage(b, listValues, write)
}

// appendValue appends the fields of a Value. What has no place in one is null, and
// so is a number that JSON cannot write.
func appendValue(b []byte, value any, depth int) []byte {
	switch v := value.(type) {
	case bool:
		return appendBool(b, v)
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return appendFloat(b, v)
		}
	case string:
		return AppendTextValue(b, v)
	case []any:
		if depth <= MaxDepth {
			return AppendListValue(b, func(b []byte) []byte {
				for _, item := range v {
					b = AppendItem(b, func(b []byte) []byte { return appendValue(b, item, depth+1) })
				}
				return b
			})
		}
	case map[string]any:
		if depth <= MaxDepth {
			return AppendStructValue(b, func(b []byte) []byte {
				for _, key := range slices.Sorted(maps.Keys(v)) {
					b = AppendEntry(b, key, func(b []byte) []byte { return appendValue(b, v[key], depth+1) })
				}
				return b
			})
		}
	}
	return protowire.AppendVarint(protowire.AppendTag(b, valueNull, protowire.VarintType), 0)
}

func appendBool(b []byte, v bool) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, valueBool, protowire.VarintType), protowire.EncodeBool(v))
}

func appendFloat(b []byte, n float64) []byte {
	b = protowire.AppendTag(b, valueNumber, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(n))
}
