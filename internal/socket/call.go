//go:build linux && (amd64 || arm64) && !plainsockets && !race

package socket

import (
	"syscall"
	"unsafe"
)

// receive reads into p, which is not empty. It does not wait, and then returns EAGAIN.
func receive(fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	return call(syscall.SYS_RECVFROM, fd, p, flags|syscall.MSG_DONTWAIT)
}

// send writes a part of p, which is not empty. It does not wait, and then returns EAGAIN.
func send(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(syscall.SYS_SENDTO, fd, p, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

func call(number, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0) //nolint:gosec // p is not empty, and RawSyscall6 keeps it
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}
