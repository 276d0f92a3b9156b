package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	strict "sigs.k8s.io/json"
)

// strictJSON decodes one JSON object. It refuses names that are unknown, doubled, or in another
// case, and texts after the object. Errors repeat nothing of the text, which may have an API key.
func strictJSON(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("is not UTF-8")
	}
	names, err := strict.UnmarshalStrict(data, v)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil && len(names) == 0:
		return nil
	case err == nil:
		return errors.New("has a name twice, or one that is not known here; upper and lower case differ")
	case errors.As(json.Unmarshal(data, v), &wrongType) && wrongType.Field != "":
		return fmt.Errorf("%s is not of the right type", wrongType.Field)
	default:
		return errors.New("is not one JSON object")
	}
}
