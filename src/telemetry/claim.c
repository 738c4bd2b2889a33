/* Lock files: one run at a time may lock the clocks of a GPU. */
#define _GNU_SOURCE /* flock, secure_getenv */
#include "telemetry/claim.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void erg_claim_folder(char *path, size_t capacity)
{
    const char *given = secure_getenv("XDG_RUNTIME_DIR"), *home = secure_getenv("HOME");
    unsigned user = (unsigned)geteuid();
    char own[64];
    struct stat info;
    snprintf(own, sizeof own, "/run/user/%u", user);
    if (user == 0)
        snprintf(path, capacity, "/run/ergon");
    else if (given && given[0] == '/')
        snprintf(path, capacity, "%s/ergon", given);
    else if (stat(own, &info) == 0)
        snprintf(path, capacity, "%s/ergon", own);
    else /* not in /tmp, where any user could take the name */
        snprintf(path, capacity, "%s/.ergon", home ? home : "");
}

/* Whether the file belongs to this user; removes the rights of others. */
static bool make_own(int file, const struct stat *info)
{
    mode_t others = info->st_mode & (S_IRWXG | S_IRWXO);
    return info->st_uid == geteuid() && !(others & (S_IWGRP | S_IWOTH)) &&
           (!others || fchmod(file, info->st_mode & S_IRWXU) == 0);
}

static int fail_unsafe(struct erg_error *err, const char *folder, const char *what)
{
    return erg_fail(
        err, ERG_FAILED,
        "preparing to lock clocks: '%s' %s, expected a folder that only this user can write to",
        folder, what);
}

static int open_folder(const char *folder, int *opened, struct erg_error *err)
{
    struct stat info;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return erg_fail(err, ERG_FAILED, "preparing to lock clocks: making the folder '%s': %s",
                        folder, strerror(errno));
    *opened = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*opened < 0)
        return fail_unsafe(err, folder, "is not a folder, or is a link");
    if (fstat(*opened, &info) == 0 && info.st_uid == geteuid() &&
        !(info.st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    close(*opened);
    return fail_unsafe(err, folder, "belongs to another user, or others may write to it");
}

/* The process ID that the holder wrote; 0 if it cannot be read. */
static long holder_of(int file)
{
    char text[24] = "";
    ssize_t count = pread(file, text, sizeof text - 1, 0);
    return count > 0 ? strtol(text, NULL, 10) : 0;
}

static int lock_file(int file, const char *folder, const char *name, int index, pid_t holder,
                     struct erg_error *err)
{
    struct stat info;
    int code;
    do
        code = flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    while (code == EINTR);
    if (code == EWOULDBLOCK)
        return erg_fail(
            err, ERG_NO_DEVICE,
            "preparing to lock clocks: another run of ergon locks those of GPU %d (it is "
            "process %ld), expected one at a time",
            index, holder_of(file));
    if (code)
        return erg_fail(err, ERG_FAILED, "preparing to lock clocks: locking '%s/%s': %s", folder,
                        name, strerror(code));
    /* Checked with the lock held: a file that was removed in between has no name any more. */
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || !make_own(file, &info) ||
        info.st_nlink != 1)
        return fail_unsafe(err, folder,
                           "contains a lock file that is not a plain file of this user");
    char text[24];
    int length = snprintf(text, sizeof text, "%ld\n", (long)holder);
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length)
        return erg_fail(err, ERG_FAILED, "preparing to lock clocks: writing '%s/%s': %s", folder,
                        name, strerror(errno));
    return 0;
}

int erg_claim_take(const char *folder, const char *uuid, int index, pid_t holder, int *claim,
                   struct erg_error *err)
{
    char name[96];
    int opened = -1;
    snprintf(name, sizeof name, "%s", uuid);
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '-')
            *at = '_';
    if (open_folder(folder, &opened, err) != 0)
        return -1;
    int file = openat(opened, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    int code = errno;
    close(opened);
    if (file < 0)
        return erg_fail(err, ERG_FAILED, "preparing to lock clocks: opening '%s/%s': %s", folder,
                        name, strerror(code));
    if (lock_file(file, folder, name, index, holder, err) != 0) {
        close(file);
        return -1;
    }
    *claim = file;
    return 0;
}
