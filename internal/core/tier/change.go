package tier

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slidegate/slidegate/internal/core/tier/strictjson"
)

// ReadChange reads the notification of a change: a JSON object with one member
// {"digest":"…"}, {"subject":"…"} or {"all":true}, or a digest alone. It ignores members
// of other names. On an error it returns the zero [Change], which stands for all records.
func ReadChange(payload []byte) (Change, error) {
	payload = bytes.TrimSpace(payload)
	if !bytes.HasPrefix(payload, []byte("{")) {
		digest, err := ReadDigest(string(payload))
		return Change{Digest: digest}, err
	}
	var c Change
	given := 0
	err := strictjson.Object(payload, func(name string, value json.RawMessage) (err error) {
		given++
		switch name {
		case "digest":
			if c.Digest, err = strictjson.Text(value); err == nil {
				c.Digest, err = ReadDigest(c.Digest)
			}
		case "subject":
			if c.ID, err = strictjson.Text(value); err == nil {
				err = ValidID(c.ID)
			}
		case "all":
			if string(value) != "true" {
				err = errors.New("it is not true")
			}
		default:
			given--
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil && given != 1 {
		err = errors.New("give exactly one of digest, subject and all")
	}
	if err != nil {
		return Change{}, fmt.Errorf("not a change: %w", err)
	}
	return c, nil
}

// ReadDigest reads a digest of 64 hexadecimal digits and returns it in lower case.
func ReadDigest(text string) (string, error) {
	digest, err := hex.DecodeString(text)
	if err != nil || len(text) != DigestLen {
		return "", fmt.Errorf("not a digest of %d hex digits, as rls digest prints it", DigestLen)
	}
	return hex.EncodeToString(digest), nil
}
