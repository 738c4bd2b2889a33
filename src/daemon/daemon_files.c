/*
 * The files that outlive a killed daemon: a lock, its leases and its grants, in its folder. Lines
 * are "GPU-UUID KNOB BEFORE_MW" and "JOB UID GPU-BITS", the bits in hexadecimal.
 */
#define _GNU_SOURCE /* flock, strsep */
#include "daemon/daemon_internal.h"

#include "base/log.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 600 };

static int check_folder(const char *folder, struct erg_error *err)
{
    struct stat info;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return erg_fail(err, ERG_FAILED, "making the folder '%s': %s", folder, strerror(errno));
    if (lstat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        info.st_mode & (S_IWGRP | S_IWOTH))
        return erg_fail(err, ERG_FAILED,
                        "using the folder '%s': expected a folder that only this user may write to",
                        folder);
    /* Other users must reach the socket. */
    if (chmod(folder, (info.st_mode & 07777) | S_IXGRP | S_IXOTH) != 0)
        return erg_fail(err, ERG_FAILED, "using the folder '%s': %s", folder, strerror(errno));
    return 0;
}

int erg_daemon_files_lock(struct erg_daemon *daemon, struct erg_error *err)
{
    char path[PATH];
    umask(077); /* only this user may read leases and grants */
    if (check_folder(daemon->options->folder, err) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/lock", daemon->options->folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return erg_fail(err, ERG_FAILED, "opening '%s': %s", path, strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        int code = errno;
        close(file);
        return erg_fail(err, ERG_FAILED,
                        "locking '%s': %s; expected no other daemon with this folder", path,
                        code == EWOULDBLOCK ? "another daemon holds it" : strerror(code));
    }
    daemon->lock = file;
    return 0;
}

/* Writes FOLDER/name; on failure logs the error and returns false. */
static bool write_text(const struct erg_daemon *daemon, const char *name, struct erg_text *text)
{
    char path[PATH];
    struct erg_error err;
    snprintf(path, sizeof path, "%s/%s", daemon->options->folder, name);
    bool written = erg_file_write(path, text->data ? text->data : "", text->count, &err) == 0;
    if (!written)
        erg_log(ERG_LOG_ERROR, "%s", err.message);
    erg_text_release(text);
    return written;
}

bool erg_daemon_files_write_leases(const struct erg_daemon *daemon)
{
    struct erg_text text = {0};
    if (daemon->elsewhere.count)
        erg_text_add_bytes(&text, daemon->elsewhere.data, daemon->elsewhere.count);
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++) {
            const struct erg_daemon_lease *lease = &daemon->items[i].leases[knob];
            if (lease->state == ERG_LEASE_HELD || lease->state == ERG_LEASE_ENDS ||
                lease->left_behind)
                erg_text_printf(&text, "%s %s %" PRId64 "\n", erg_gpus_info(daemon->gpus, i)->uuid,
                                erg_knob_name(knob), lease->before_mw);
        }
    return write_text(daemon, "leases", &text);
}

bool erg_daemon_files_write_grants(const struct erg_daemon *daemon)
{
    struct erg_text text = {0};
    for (size_t i = 0; i < ERG_DAEMON_GRANTS; i++) {
        const struct erg_daemon_grant *grant = &daemon->grants[i];
        if (grant->job)
            erg_text_printf(&text, "%" PRIu32 " %" PRIu32 " %" PRIx64 "\n", grant->job, grant->uid,
                            grant->gpus);
    }
    return write_text(daemon, "grants", &text);
}

/* False if the line is not a lease of a present GPU. */
static bool read_lease(struct erg_daemon *daemon, const char *line)
{
    char uuid[96], name[16];
    int64_t before_mw;
    if (sscanf(line, "%95s %15s %" SCNd64, uuid, name, &before_mw) != 3)
        return false;
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
            if (strcmp(erg_gpus_info(daemon->gpus, i)->uuid, uuid) == 0 &&
                strcmp(erg_knob_name(knob), name) == 0) {
                erg_daemon_lease_restore(daemon, i, knob, before_mw);
                return true;
            }
    return false;
}

int erg_daemon_files_read(struct erg_daemon *daemon, struct erg_error *err)
{
    static const char *const names[] = {"leases", "grants"};
    size_t grants = 0;
    for (int which = 0; which < 2; which++) {
        char path[PATH], *text, *rest, *line;
        snprintf(path, sizeof path, "%s/%s", daemon->options->folder, names[which]);
        if (access(path, F_OK) != 0 && errno == ENOENT)
            continue;
        if (erg_file_read(path, 0, &text, NULL, err) != 0)
            return -1;
        for (rest = text; (line = strsep(&rest, "\n"));) {
            struct erg_daemon_grant grant;
            if (which == 0 && *line && !read_lease(daemon, line))
                erg_text_printf(&daemon->elsewhere, "%s\n", line);
            else if (which == 1 && grants < ERG_DAEMON_GRANTS &&
                     sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNx64, &grant.job, &grant.uid,
                            &grant.gpus) == 3)
                daemon->grants[grants++] = grant;
        }
        free(text);
    }
    return 0;
}
