/* A C library whose file calls fail when they are told to: loaded with LD_PRELOAD into a process of a test.

   Two uses. `faults_arm` chooses calls (a mask), files (by a part of their path) and a fault: an error number, -1 for the
   end of the process by SIGKILL, or a short read or write; it spares the first `skip` matching calls and then fails
   `times` of them. `faults_log` appends the path
   of everything that is created or renamed to a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, TRUNCATE = 16, RENAME = 32 };

static int mask, fault, only_short;
static long skip, times, seen;
static char part[PATH_MAX];
static int log_fd = -1;

void faults_arm(int calls, const char *path_part, int error, int short_, long skip_, long times_) {
    snprintf(part, sizeof part, "%s", path_part);
    fault = error, only_short = short_, skip = skip_, times = times_, seen = 0;
    mask = calls;
}
long faults_disarm(void) { mask = 0; return seen; }
void faults_log(int fd) { log_fd = fd; }

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* 0: let it pass; otherwise this call fails. */
static int strikes(int call, const char *path) {
    if (!(mask & call) || !strstr(path, part)) return 0;
    seen++;
    if (seen <= skip || seen > skip + times) return 0;
    if (fault < 0) kill(getpid(), SIGKILL);
    errno = fault;
    return 1;
}
static int strikes_fd(int call, int fd) {
    char link[64], path[PATH_MAX];
    if (!(mask & call)) return 0;
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = kept;
    if (length < 0) return 0;
    path[length] = 0;
    return strikes(call, path);
}
static void note(int dir, const char *path) {
    char link[64], whole[2 * PATH_MAX], base[PATH_MAX];
    if (log_fd < 0) return;
    int kept = errno;
    if (path[0] == '/') snprintf(whole, sizeof whole, "%s\n", path);
    else {
        ssize_t length = -1;
        if (dir == AT_FDCWD) { if (getcwd(base, sizeof base)) length = (ssize_t)strlen(base); }
        else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            length = readlink(link, base, sizeof base - 1);
        }
        if (length < 0) { errno = kept; return; }
        base[length] = 0;
        snprintf(whole, sizeof whole, "%s/%s\n", base, path);
    }
    REAL(write);
    if (real(log_fd, whole, strlen(whole)) < 0) perror("faulty_libc");
    errno = kept;
}

#define MODE(flags) mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
#define OPENS(name) int name(const char *path, int flags, ...) { \
    MODE(flags) REAL(name); \
    if (strikes(OPEN, path)) return -1; \
    if (flags & O_CREAT) note(AT_FDCWD, path); \
    return real(path, flags, mode); }
#define OPENS_AT(name) int name(int dir, const char *path, int flags, ...) { \
    MODE(flags) REAL(name); \
    if (strikes(OPEN, path)) return -1; \
    if (flags & O_CREAT) note(dir, path); \
    return real(dir, path, flags, mode); }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

static size_t halved(size_t size) { return size > 1 ? size / 2 : size; }

ssize_t read(int fd, void *into, size_t size) {
    REAL(read);
    if (strikes_fd(READ, fd)) { if (!only_short) return -1; size = halved(size); }
    return real(fd, into, size);
}
ssize_t write(int fd, const void *from, size_t size) {
    REAL(write);
    if (fd != log_fd && strikes_fd(WRITE, fd)) { if (!only_short) return -1; size = halved(size); }
    return real(fd, from, size);
}
#define READS_AT(name, offset_type) ssize_t name(int fd, void *into, size_t size, offset_type at) { \
    REAL(name); \
    if (strikes_fd(READ, fd)) { if (!only_short) return -1; size = halved(size); } \
    return real(fd, into, size, at); }
#define WRITES_AT(name, offset_type) ssize_t name(int fd, const void *from, size_t size, offset_type at) { \
    REAL(name); \
    if (strikes_fd(WRITE, fd)) { if (!only_short) return -1; size = halved(size); } \
    return real(fd, from, size, at); }
READS_AT(pread, off_t)
READS_AT(pread64, off64_t)
WRITES_AT(pwrite, off_t)
WRITES_AT(pwrite64, off64_t)

#define SYNCS(name) int name(int fd) { REAL(name); if (strikes_fd(SYNC, fd)) return -1; return real(fd); }
SYNCS(fsync)
SYNCS(fdatasync)

#define TRUNCATES(name, offset_type) int name(int fd, offset_type size) { \
    REAL(name); if (strikes_fd(TRUNCATE, fd)) return -1; return real(fd, size); }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(rename);
    if (strikes(RENAME, to)) return -1;
    note(AT_FDCWD, to);
    return real(from, to);
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    REAL(renameat);
    if (strikes(RENAME, to)) return -1;
    note(to_dir, to);
    return real(from_dir, from, to_dir, to);
}
int mkdir(const char *path, mode_t mode) { REAL(mkdir); note(AT_FDCWD, path); return real(path, mode); }
int mkdirat(int dir, const char *path, mode_t mode) { REAL(mkdirat); note(dir, path); return real(dir, path, mode); }
