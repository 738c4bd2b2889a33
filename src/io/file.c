/* Whole files, read, and written in one step. */
#define _XOPEN_SOURCE 700 /* realpath */
#define _DEFAULT_SOURCE   /* flock */

#include "io/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_failed(struct erg_error *err, const char *path, int reason)
{
    return erg_fail(err, ERG_FAILED, "reading '%s': %s", path, strerror(reason));
}

/* The pipes of a shell, "-" as /dev/stdin and <(command), have a writer; others may have none. */
static bool is_named_pipe(const char *path)
{
    return strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/proc/", 6) != 0;
}

int erg_file_read(const char *path, size_t limit_bytes, char **text, size_t *length,
                  struct erg_error *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISFIFO(info.st_mode) && is_named_pipe(path))
        return erg_fail(err, ERG_FAILED,
                        "reading '%s': this is a named pipe, which may never end; expected a file",
                        path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return read_failed(err, path, errno);
    size_t capacity = 4096;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        capacity = (size_t)info.st_size + 1; /* room to see the end in one read */
    if (!limit_bytes)
        limit_bytes = capacity > ERG_FILE_UNSIZED_BYTES ? capacity : ERG_FILE_UNSIZED_BYTES;
    if (capacity > limit_bytes + 2)
        capacity = limit_bytes + 2;
    char *data = erg_xmalloc(capacity + 1);
    size_t count = 0;
    for (;;) {
        if (count == capacity) {
            capacity = erg_grow_capacity(capacity, capacity * 2);
            data = erg_xrealloc(data, capacity + 1, 1);
        }
        ssize_t got = read(file, data + count, capacity - count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int reason = errno;
            free(data);
            close(file);
            return read_failed(err, path, reason);
        }
        count += (size_t)got;
        if (count > limit_bytes) {
            free(data);
            close(file);
            return erg_fail(err, ERG_FAILED,
                            "reading '%s': the file has more than the %zu bytes that are expected "
                            "here at most",
                            path, limit_bytes);
        }
        if (got == 0)
            break;
    }
    close(file);
    data[count] = '\0';
    *text = data;
    if (length)
        *length = count;
    return 0;
}

/* Writes everything, syncs and closes; returns 0 or the errno of the first failure. */
static int fill_and_close(int file, const char *bytes, size_t count, bool sync)
{
    int reason = 0;
    while (count > 0) {
        ssize_t put = write(file, bytes, count);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            reason = errno;
            break;
        }
        bytes += put;
        count -= (size_t)put;
    }
    if (!reason && sync && fsync(file) != 0)
        reason = errno;
    if (close(file) != 0 && !reason)
        reason = errno; /* network file systems report a full disk here */
    return reason;
}

static void sync_folder_of(const char *path)
{
    char *folder = erg_xstrdup(path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int handle = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle >= 0) {
        fsync(handle); /* not every file system can; the rename itself is done */
        close(handle);
    }
    free(folder);
}

/* Removes NAME.PID.N.tmp where that process has ended: nobody holds the lock that a writer has. */
static void remove_if_left(const char *folder, const char *name, const char *entry)
{
    char *end;
    const size_t length = strlen(name);
    if (strncmp(entry, name, length) != 0 || entry[length] != '.' || !isdigit(entry[length + 1]))
        return;
    long process = strtol(entry + length + 1, &end, 10);
    if (*end != '.' || !isdigit(end[1]))
        return;
    strtol(end + 1, &end, 10);
    if (strcmp(end, ".tmp") != 0 || process < 1 || kill((pid_t)process, 0) == 0 || errno != ESRCH)
        return;
    size_t room = strlen(folder) + strlen(entry) + 2;
    char *path = erg_xmalloc(room);
    snprintf(path, room, "%s/%s", folder, entry);
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0)
        unlink(path);
    if (file >= 0)
        close(file);
    free(path);
}

/* What runs that were killed between writing and renaming have left of this file. */
static void remove_left(const char *target)
{
    char *folder = erg_xstrdup(target);
    char *slash = strrchr(folder, '/');
    const char *name = slash ? strrchr(target, '/') + 1 : target;
    if (slash)
        slash[slash == folder] = '\0';
    DIR *entries = opendir(slash ? folder : ".");
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        remove_if_left(slash ? folder : ".", name, entry->d_name);
    if (entries)
        closedir(entries);
    free(folder);
}

int erg_file_write(const char *path, const void *bytes, size_t count, struct erg_error *err)
{
    static atomic_uint serial; /* several threads may write the same path */
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        int file = open(path, O_WRONLY | O_CLOEXEC);
        int reason = file < 0 ? errno : fill_and_close(file, bytes, count, false);
        return reason ? erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(reason)) : 0;
    }
    if (exists && S_ISDIR(info.st_mode))
        return erg_fail(err, ERG_FAILED, "writing '%s': this is a folder, expected a file name",
                        path);

    char *target = exists ? realpath(path, NULL) : NULL;
    if (!target)
        target = erg_xstrdup(path);
    size_t room = strlen(target) + 48;
    char *temporary = erg_xmalloc(room);
    snprintf(temporary, room, "%s.%ld.%u.tmp", target, (long)getpid(),
             atomic_fetch_add(&serial, 1));

    int reason = 0;
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        reason = errno;
    } else {
        flock(file, LOCK_EX | LOCK_NB); /* says that its writer lives, also on another machine */
        if (exists && fchmod(file, info.st_mode & 07777) != 0)
            reason = errno; /* the old file's mode, whatever the umask says */
        int failed = fill_and_close(file, bytes, count, true);
        reason = reason ? reason : failed;
        if (!reason && rename(temporary, target) != 0)
            reason = errno;
        if (reason)
            unlink(temporary);
        else
            sync_folder_of(target);
    }
    remove_left(target);
    free(temporary);
    free(target);
    if (!reason)
        return 0;
    return erg_fail(err, ERG_FAILED, "writing '%s' (%zu bytes): %s", path, count, strerror(reason));
}

int erg_dir_make(const char *path, struct erg_error *err)
{
    char *partial = erg_xstrdup(path);
    int reason = 0;
    for (char *at = partial + 1; *partial && !reason; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        struct stat info;
        if (mkdir(partial, 0777) != 0) {
            reason = errno;
            if (stat(partial, &info) == 0)
                reason = S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
        }
        *at = kept;
        if (!kept)
            break;
    }
    free(partial);
    if (!*path)
        reason = ENOENT;
    return reason ? erg_fail(err, ERG_FAILED, "making the folder '%s': %s", path, strerror(reason))
                  : 0;
}
