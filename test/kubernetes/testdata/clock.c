/* A library to preload into a program, so that a test can set the clock of this program alone. The
 * clock of the system plus the seconds in /clock/offset (8 bytes, as the machine orders them) is the
 * clock of the program. The monotonic clock stays as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long *offset;

__attribute__((constructor)) static void map(void) {
	int fd = open("/clock/offset", O_RDONLY);
	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED)
		offset = p;
	close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int result = syscall(SYS_clock_gettime, id, ts);
	if (result == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ts->tv_sec += *offset;
	return result;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec ts;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
