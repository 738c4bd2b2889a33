/* Reading and writing whole files, making folders. */
#define _DEFAULT_SOURCE /* flock, realpath */

#include "io/file.h"

#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

int erg_file_refuse_fifo(const char *path, struct erg_error *err)
{
    struct stat info;
    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0 ||
        stat(path, &info) != 0 || !S_ISFIFO(info.st_mode))
        return 0;
    return erg_fail(err, ERG_FAILED,
                    "reading '%s': this is a FIFO, expected a file; a pipe can be given as "
                    "/dev/stdin",
                    path);
}

int erg_file_read(const char *path, size_t limit_bytes, char **text, size_t *length,
                  struct erg_error *err)
{
    if (erg_file_refuse_fifo(path, err) != 0)
        return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return read_failed(err, path, errno);
    struct stat info;
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
                            "reading '%s': the file has more than %zu bytes, the limit", path,
                            limit_bytes);
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

/* Writes everything; returns 0 or the errno of the first failure. */
static int fill(int file, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t put = write(file, bytes, count);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return errno;
        bytes += put;
        count -= (size_t)put;
    }
    return 0;
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

/* ".PID.SERIAL.tmp", the suffix of a temporary name. */
static bool is_temporary(const char *suffix)
{
    for (int number = 0; number < 2; number++) {
        if (*suffix != '.' || !isdigit((unsigned char)suffix[1]))
            return false;
        suffix += 1 + strspn(suffix + 1, "0123456789");
    }
    return strcmp(suffix, ".tmp") == 0;
}

/*
 * Removes temporary files that killed runs left while writing this file. A writer holds a lock on
 * its temporary file, on any machine; without support for locks nothing is removed.
 */
static void remove_abandoned(const char *target)
{
    char *folder = erg_xstrdup(target);
    char *slash = strrchr(folder, '/');
    const char *name = slash ? target + (slash + 1 - folder) : target;
    if (slash)
        slash[1] = '\0';
    DIR *listing = opendir(slash ? folder : ".");
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;) {
        if (strncmp(entry->d_name, name, strlen(name)) != 0 ||
            !is_temporary(entry->d_name + strlen(name)))
            continue;
        int file =
            openat(dirfd(listing), entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat info;
        if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
            flock(file, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(listing), entry->d_name, 0);
        if (file >= 0)
            close(file);
    }
    if (listing)
        closedir(listing);
    free(folder);
}

/* A locked file with a new name next to the target; -1 with errno. */
static int make_temporary(const char *target, char **name)
{
    static atomic_uint serial; /* several threads may write the same path */
    size_t room = strlen(target) + 48;
    char *temporary = erg_xmalloc(room);
    struct stat info;
    for (;;) {
        snprintf(temporary, room, "%s.%ld.%u.tmp", target, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno == EEXIST)
            continue; /* of a killed process with this number, on a machine without locks */
        if (file < 0) {
            int reason = errno;
            free(temporary);
            errno = reason;
            return -1;
        }
        while (flock(file, LOCK_EX) != 0 && errno == EINTR)
            ;
        if (fstat(file, &info) != 0 || info.st_nlink > 0) {
            *name = temporary;
            return file;
        }
        close(file); /* it was removed before it was locked */
    }
}

static int write_failed(struct erg_error *err, const char *path, uint64_t bytes, int reason)
{
    if (!bytes)
        return erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(reason));
    return erg_fail(err, ERG_FAILED, "writing '%s' (%" PRIu64 " bytes): %s", path, bytes,
                    strerror(reason));
}

int erg_file_begin(struct erg_file_writer *writer, const char *path, struct erg_error *err)
{
    *writer = (struct erg_file_writer){.path = path, .file = -1};
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return erg_fail(err, ERG_FAILED, "writing '%s': this is a folder, expected a file name",
                        path);
    int reason = 0;
    if (exists && !S_ISREG(info.st_mode)) {
        writer->file = open(path, O_WRONLY | O_CLOEXEC);
        reason = writer->file < 0 ? errno : 0;
    } else {
        writer->target = exists ? realpath(path, NULL) : NULL;
        if (!writer->target)
            writer->target = erg_xstrdup(path);
        remove_abandoned(writer->target);
        writer->file = make_temporary(writer->target, &writer->temporary);
        if (writer->file < 0 || (exists && fchmod(writer->file, info.st_mode & 07777) != 0))
            reason = errno; /* the old file's mode, regardless of the umask */
    }
    if (!reason)
        return 0;
    erg_file_abandon(writer);
    return write_failed(err, path, 0, reason);
}

int erg_file_append(struct erg_file_writer *writer, const void *bytes, size_t count,
                    struct erg_error *err)
{
    writer->count += count;
    int reason = fill(writer->file, bytes, count);
    return reason ? write_failed(err, writer->path, writer->count, reason) : 0;
}

int erg_file_commit(struct erg_file_writer *writer, struct erg_error *err)
{
    int reason = 0;
    if (!writer->temporary) { /* a device or a pipe, written directly */
        reason = close(writer->file) != 0 ? errno : 0;
        writer->file = -1;
    } else if (fsync(writer->file) != 0 || /* network file systems find a full disk here */
               rename(writer->temporary, writer->target) != 0) {
        reason = errno;
    } else {
        sync_folder_of(writer->target);
        free(writer->temporary);
        writer->temporary = NULL;
    }
    erg_file_abandon(writer);
    return reason ? write_failed(err, writer->path, writer->count, reason) : 0;
}

int erg_file_write_some(int file, struct erg_text *text)
{
    size_t written = 0;
    ssize_t count = 1;
    while (written < text->count && (count > 0 || (count < 0 && errno == EINTR))) {
        count = write(file, text->data + written, text->count - written);
        written += count > 0 ? (size_t)count : 0;
    }
    int reason = count == 0 ? ENOSPC : errno;
    if (written)
        memmove(text->data, text->data + written, text->count - written);
    text->count -= written;
    errno = reason;
    return text->count == 0 ? 0 : -1;
}

void erg_file_abandon(struct erg_file_writer *writer)
{
    if (writer->temporary)
        unlink(writer->temporary);
    if (writer->file >= 0)
        close(writer->file); /* with it goes the lock */
    free(writer->temporary);
    free(writer->target);
    writer->temporary = writer->target = NULL;
    writer->file = -1;
}

int erg_file_write(const char *path, const void *bytes, size_t count, struct erg_error *err)
{
    struct erg_file_writer writer;
    if (erg_file_begin(&writer, path, err) != 0)
        return -1;
    int result = erg_file_append(&writer, bytes, count, err);
    if (result == 0)
        return erg_file_commit(&writer, err);
    erg_file_abandon(&writer);
    return result;
}

char *erg_file_path(const char *folder, const char *name)
{
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/%s", folder, name);
    return path.data;
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

int erg_dir_refuse_files(const char *folder, const char *const *names, const char *rest,
                         struct erg_error *err)
{
    struct erg_text path = {0};
    int result = 0;
    for (; *names && result == 0; names++) {
        path.count = 0;
        erg_text_printf(&path, "%s/%s", folder, *names);
        if (access(path.data, F_OK) == 0)
            result =
                erg_fail(err, ERG_FAILED, "writing '%s': this file exists, %s", path.data, rest);
    }
    erg_text_release(&path);
    return result;
}
