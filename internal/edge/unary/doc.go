// Package unary is a gRPC server for unary methods. It uses the framing and header compression of
// golang.org/x/net/http2, and the status, codes, metadata, codecs, interceptors and service
// descriptors of grpc-go. It has connections, HTTP/2 frames, pseudo-headers, grpc-timeout, flow
// control, GOAWAY, and budgets against floods. It serves no streams, which saves most of what a
// call costs.
//
// # Why
//
// grpc-go moves every call from the goroutine that reads to one that handles, and the
// answer to one that writes. These three wake-ups cost several times what it takes to
// decide a rate limit. Here the goroutine that has read a call also answers it, if its
// [Handler] need not wait. One write sends all answers since the last read.
//
// # A connection
//
// Each connection has one goroutine, which reads. The type reader is what it uses alone,
// and the type locked is what it shares with the goroutines of handlers. A connection goes
// through these states. Serving and all later ones are the phases in conn.go.
//
//	handshake → opening → serving → draining → leaving → closed
//	                         └──────────────────────→ failed → closed
//
// What happens in them:
//
//   - handshake: TLS, if it is configured, and the client's preface. A client that fails
//     here is closed without a GOAWAY.
//   - opening: the server sends SETTINGS and a larger window. The client's first frame
//     must be SETTINGS.
//   - draining: a GOAWAY asks the client to reconnect, because of the connection's age, or because
//     the server stops. It names the highest stream number, and a PING follows. The server
//     serves what the client sends before it acknowledges the PING, for at most 5 s.
//   - leaving: a second GOAWAY names the last call that is served. Once all calls are
//     answered, the server closes its side. The client has a second to close its own.
//   - failed: the client has broken a rule of the connection. A GOAWAY says which one. The
//     server then reads and drops up to 1 MiB for a second, because to close a socket with
//     unread bytes would discard the GOAWAY.
//
// # A call
//
// A header block opens a stream. It is decoded into memory of the connection, and it
// decides whether a handler answers: see refuse. DATA is gathered until the request
// ends. Nearly every request is one DATA frame, whose memory is used without a copy. Then
//
//   - the method's [Handler] answers without waiting, on this goroutine; or
//   - the Handler does not decide, and is called again in a coroutine, with a window.Pauser. It may
//     pause there. Once no whole frame is left to read, this goroutine flushes what the calls wait
//     for, and lets them go on. If that takes longer than a millisecond, another goroutine reads on; or
//   - the Handler does not decide there either, and is called again on a separate goroutine. Every
//     method without a Handler runs on such a goroutine too. Its context ends with
//     grpc-timeout, with RST_STREAM and with the connection.
//
// So a call that waits delays no other call for longer than that. The server refuses a request that has not
// exactly one message, and DATA that is not as long as content-length. A client that does
// not speak gRPC is answered (HTTP 4xx) at the end of its request. Other refusals are
// sent at once, with RST_STREAM (NO_ERROR) behind them if the request has not ended.
//
// # Writing
//
// Frames are appended to one buffer of the connection, under its lock. The reading
// goroutine writes the buffer to the socket before it waits for more to read, and when
// 32 KiB have gathered. A handler's goroutine writes as soon as the handler has returned.
// If another goroutine is already writing, that one goes on until the buffer is empty.
// No goroutine holds the lock while it writes.
//
// DATA is sent as the client's windows allow. What does not fit waits in its stream, the
// oldest first, and the stream counts as open.
//
// # Bounds
//
// For one connection, unless something else is said:
//
//   - Options.MaxStreams open streams, including reset streams whose handlers still run.
//     The server refuses more (REFUSED_STREAM).
//   - Options.MaxMessageBytes for a message. Unfinished messages, and the metadata of calls
//     without a Handler, may together take MaxMessageBytes and 1 MiB. Calls beyond are
//     answered RESOURCE_EXHAUSTED, or as their Handler decides with Options.Beyond.
//   - Options.MaxHeaderBytes for a header list (RESOURCE_EXHAUSTED), twice that for its
//     encoding (the end of the connection). 4 KiB for the header table of either side.
//   - 16 KiB for a frame; 64 KiB and 1 MiB for the windows of a stream and of the
//     connection.
//   - Frames that are not calls cost a token: PING, SETTINGS and each setting, PRIORITY,
//     WINDOW_UPDATE, RST_STREAM, CONTINUATION, unknown types, and short DATA that does not
//     end a request. Frames that concern many streams cost more. A fault for which the server
//     resets a stream costs ten. A connection has 10,000 tokens. It gets back 2,000 a second,
//     and four for each answered call. Without tokens the connection ends with
//     ENHANCE_YOUR_CALM.
//   - PINGs: so does a third PING that comes sooner than Options.Lifetime.MinPingInterval, if
//     nothing was answered in between, as in grpc-go.
//   - Unread answers: once 256 KiB wait to be sent, or while a write does not end, the
//     server reads nothing more, and closes the connection after Options.Lifetime.WriteTimeout.
//     Answers of handlers that still run wait, one for each stream.
//   - A request that is not whole within its timeout, or within 30 s, is answered
//     DEADLINE_EXCEEDED. An answer without a window for Options.Lifetime.WriteTimeout is reset with
//     CANCEL.
//   - Options.Lifetime.OpenTimeout, KeepaliveTime, KeepaliveTimeout and MaxConnectionAge; 5 s for the
//     client to acknowledge the PING of a drain, and a second to close. One goroutine of the
//     server checks all connections about once a second, so that connections need no timers.
//     The times are as coarse as that.
//
// An idle connection holds one goroutine, a buffer of 8 KiB, the two header tables, and
// memory for the next calls: some dozens of streams, one frame, one answer and one header
// block. A server keeps up to 256 coroutines, and ends those that it did not need for a second or two.
//
// # Errors
//
// A fault of a client is an error of its connection or of its stream, as in RFC 9113. A
// panic ends its connection, whether it is in this package or in a handler that did not
// recover. [Meters] counts why connections end.
//
// # What differs from grpc-go
//
//   - Methods that stream are UNIMPLEMENTED. So is a request with no message or with
//     several.
//   - Trailers of requests are accepted.
//   - Frames for streams that were never opened, too large windows and bad settings end
//     the connection with a GOAWAY.
//   - A header list that is too large is answered, not reset. The answer to an unknown
//     grpc-encoding lists the known ones.
//   - A header that a handler sets is sent with the answer, also with grpc.SendHeader.
//   - If a handler ignores the end of its context, its call is answered when it returns.
//   - The server ignores SETTINGS_MAX_HEADER_LIST_SIZE of clients. Compressed messages are
//     UNIMPLEMENTED.
package unary
