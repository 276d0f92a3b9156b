package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// strictJSON decodes one JSON object. It refuses unknown names, and texts after the object. Errors
// repeat nothing of the text, which may have an API key.
func strictJSON(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		if _, err = d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("something follows the JSON object")
		}
		return nil
	case errors.As(err, &wrongType) && wrongType.Field != "":
		return fmt.Errorf("%s is not of the right type", wrongType.Field)
	default:
		return errors.New("is not a JSON object, or has a name that is not known here")
	}
}
