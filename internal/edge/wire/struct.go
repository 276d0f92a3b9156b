package wire

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The field numbers of google.protobuf.Struct and of its inner messages.
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

// MaxDepth bounds the nesting of metadata; deeper values are null. Readers in C++ refuse a
// message that is nested 100 deep, and each inner mapping adds three levels.
const MaxDepth = 20

// AppendEntry appends an entry of a Struct. value appends the fields of its Value.
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

// AppendBoolEntry appends an entry of a Struct that is a bool.
func AppendBoolEntry(b []byte, key string, value bool) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return appendBool(b, value) })
}

// AppendValueEntry appends an entry of a Struct with a value of a type that encoding/json
// decodes into an any. A value of another type, or nested deeper than [MaxDepth], becomes
// null.
func AppendValueEntry(b []byte, key string, value any) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return appendValue(b, value, 1) })
}

// AppendStructEntry appends an entry of a Struct that is itself a Struct. write appends its
// entries.
func AppendStructEntry(b []byte, key string, write func([]byte) []byte) []byte {
	return AppendEntry(b, key, func(b []byte) []byte { return AppendMessage(b, valueStruct, write) })
}

// AppendTextValue appends the field of a Value that is a text. It writes an empty text too:
// a Value without a field has no kind.
func AppendTextValue(b []byte, text string) []byte { return AppendAnyText(b, valueText, text) }

// AppendStructValue appends the field of a Value that is a Struct.
func AppendStructValue(b []byte, write func([]byte) []byte) []byte {
	return AppendMessage(b, valueStruct, write)
}

// AppendListValue appends the field of a Value that is a list. write appends its items with
// [AppendItem].
func AppendListValue(b []byte, write func([]byte) []byte) []byte {
	return AppendMessage(b, valueList, write)
}

// AppendItem appends an item of a list. write appends the fields of its Value.
func AppendItem(b []byte, write func([]byte) []byte) []byte {
	return AppendMessage(b, listValues, write)
}

// appendValue appends the fields of a Value. A value of another type becomes null, as does
// a number that JSON cannot express.
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
