/* Takes, renews and releases the lease of a spool. */
#define _GNU_SOURCE /* getrandom, st_mtim */
#include "cluster/live/lease.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its holder may renew the lease during this part of its time: the holder's actions then end long
 * before others may take the next lease. */
static const double renewable = 2.0 / 3;

static const char no_owner[] = "-";

/* The scope in which a process id identifies a process. */
struct space {
    char host[256], boot[40], pids[32];
};

static struct space this_space(void)
{
    struct space space = {.boot = "", .pids = ""};
    char *text;
    gethostname(space.host, sizeof space.host - 1);
    if (erg_file_read("/proc/sys/kernel/random/boot_id", ERG_FILE_SMALL_BYTES, &text, NULL, NULL) ==
        0) {
        snprintf(space.boot, sizeof space.boot, "%.*s", (int)strcspn(text, "\n"), text);
        free(text);
    }
    if (readlink("/proc/self/ns/pid", space.pids, sizeof space.pids - 1) < 0)
        space.pids[0] = '\0';
    return space;
}

/* The contents of a lease's file. */
struct written {
    char owner[17];
    struct space space;
    long pid;
    double seconds;    /* duration */
    double modified_s; /* on the file system's clock */
};

static char *path_of(const char *folder, long number)
{
    char name[40];
    snprintf(name, sizeof name, "lease.%ld", number);
    return erg_file_path(folder, name);
}

static void add_lines(struct erg_text *text, const char *owner, double seconds)
{
    const struct space space = this_space();
    erg_text_printf(text, "%s\n%s\n%s\n%s\n%ld\n%.3f\n", owner, space.host, space.boot, space.pids,
                    (long)getpid(), seconds);
}

/* The next line of a text, truncated if it is too long. */
static void take_line(const char **text, char *line, size_t capacity)
{
    const size_t length = strcspn(*text, "\n");
    snprintf(line, capacity, "%.*s", (int)length, *text);
    *text += length + ((*text)[length] == '\n');
}

static double modified(const struct stat *info)
{
    return (double)info->st_mtim.tv_sec + 1e-9 * (double)info->st_mtim.tv_nsec;
}

/* An unreadable lease belongs to another controller, and expires some time after it was written. */
static void read_lease(struct written *lease, const char *folder, long number)
{
    char *path = path_of(folder, number), *text, pid[24], seconds[32];
    struct stat info;
    *lease = (struct written){.owner = "?", .seconds = 60};
    if (stat(path, &info) == 0)
        lease->modified_s = modified(&info);
    if (erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, NULL, NULL) == 0) {
        const char *at = text;
        take_line(&at, lease->owner, sizeof lease->owner);
        take_line(&at, lease->space.host, sizeof lease->space.host);
        take_line(&at, lease->space.boot, sizeof lease->space.boot);
        take_line(&at, lease->space.pids, sizeof lease->space.pids);
        take_line(&at, pid, sizeof pid);
        take_line(&at, seconds, sizeof seconds);
        lease->pid = strtol(pid, NULL, 10);
        const double holds_s = strtod(seconds, NULL);
        if (holds_s > 0 || strcmp(lease->owner, no_owner) == 0)
            lease->seconds = holds_s;
        free(text);
    }
    free(path);
}

/* The highest number; 0 if there is no lease yet; -1 if the folder cannot be read. Removes those
 * below `keep`. */
static long highest_in(const char *folder, long keep)
{
    DIR *files = opendir(folder);
    long highest = 0;
    if (!files)
        return -1;
    for (struct dirent *entry; (entry = readdir(files)) != NULL;) {
        long number;
        if (strncmp(entry->d_name, "lease.", 6) != 0 ||
            !erg_parse_long(entry->d_name + 6, &number) || number < 1)
            continue;
        highest = number > highest ? number : highest;
        if (number < keep)
            unlinkat(dirfd(files), entry->d_name, 0);
    }
    closedir(files);
    return highest;
}

/* Returns true if its process has certainly ended. */
static bool is_dead(const struct written *lease)
{
    const struct space here = this_space();
    return lease->pid > 0 && here.boot[0] && strcmp(here.host, lease->space.host) == 0 &&
           strcmp(here.boot, lease->space.boot) == 0 && strcmp(here.pids, lease->space.pids) == 0 &&
           (lease->pid == (long)getpid() || (kill((pid_t)lease->pid, 0) != 0 && errno == ESRCH));
}

static int lose(struct erg_lease *lease, const char *folder, const struct written *holder,
                double left_s, struct erg_error *err)
{
    lease->number = 0;
    return erg_fail(err, ERG_FAILED,
                    "another controller, process %ld on host '%s', holds '%s' for another %.0f s",
                    holder->pid, holder->space.host, folder, left_s > 0 ? left_s : 0);
}

/* Another controller has taken the next number. */
static int lose_to(struct erg_lease *lease, const char *folder, long number, struct erg_error *err)
{
    struct written holder;
    read_lease(&holder, folder, number);
    return lose(lease, folder, &holder, holder.seconds, err);
}

static int take(struct erg_lease *lease, const char *folder, const char *own, long number,
                struct erg_error *err)
{
    char *path = path_of(folder, number);
    struct stat info;
    /* On NFS the reply may be lost: then the file has two names, which shows that the link was
     * made. */
    const int failure = link(own, path) == 0 ? 0 : errno;
    const bool taken = failure == 0 || (stat(own, &info) == 0 && info.st_nlink == 2);
    int result = 0;
    if (!taken && failure != EEXIST) {
        erg_fail(err, ERG_FAILED, "making '%s': %s", path, strerror(failure));
        result = 1;
    }
    const long highest = result == 0 ? highest_in(folder, taken ? number : 0) : number;
    if (result == 0 && (!taken || highest != number)) {
        if (taken)
            unlink(path); /* of a number that others have passed */
        result = lose_to(lease, folder, highest, err);
    }
    if (result == 0)
        lease->number = number;
    free(path);
    return result;
}

/* `own`: a file that was just written. */
static int renew(struct erg_lease *lease, const char *folder, const char *own, double now_s,
                 double seconds, struct erg_error *err)
{
    const long highest = highest_in(folder, 0);
    struct written last = {.owner = "-"};
    if (highest < 0) {
        erg_fail(err, ERG_FAILED, "reading '%s': %s", folder, strerror(errno));
        return 1;
    }
    if (highest > 0)
        read_lease(&last, folder, highest);
    const double left_s = last.modified_s + last.seconds - now_s;
    const bool held =
        lease->number > 0 && highest == lease->number && strcmp(last.owner, lease->owner) == 0;
    if (held && left_s >= (1 - renewable) * seconds) {
        char *path = path_of(folder, highest);
        const int result = rename(own, path) == 0 ? 0 : 1;
        if (result != 0)
            erg_fail(err, ERG_FAILED, "writing '%s': %s", path, strerror(errno));
        free(path);
        const long after = highest_in(folder, 0);
        return after > highest ? lose_to(lease, folder, after, err) : result;
    }
    if (!held && strcmp(last.owner, no_owner) != 0 && left_s > 0 && !is_dead(&last))
        return lose(lease, folder, &last, left_s, err);
    return take(lease, folder, own, highest + 1, err);
}

int erg_lease_renew(struct erg_lease *lease, const char *folder, double seconds,
                    struct erg_error *err)
{
    if (!lease->owner[0]) {
        uint64_t bits;
        if (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
            erg_fail(err, ERG_FAILED, "drawing a random name: %s", strerror(errno));
            return 1;
        }
        snprintf(lease->owner, sizeof lease->owner, "%016" PRIx64, bits);
    }
    char name[40];
    snprintf(name, sizeof name, "own.%s", lease->owner);
    char *own = erg_file_path(folder, name);
    struct erg_text text = {0};
    struct stat info;
    add_lines(&text, lease->owner, seconds);
    int result = erg_file_write(own, text.data, text.count, err) == 0 && stat(own, &info) == 0;
    if (result) {
        result = renew(lease, folder, own, modified(&info), seconds, err);
    } else {
        /* While no process can write, no other controller can take it. */
        const long highest = highest_in(folder, 0);
        result =
            lease->number > 0 && highest > lease->number ? lose_to(lease, folder, highest, err) : 1;
    }
    unlink(own);
    free(own);
    erg_text_release(&text);
    return result;
}

void erg_lease_give_back(struct erg_lease *lease, const char *folder)
{
    if (lease->number == 0 || highest_in(folder, 0) != lease->number)
        return;
    struct erg_text text = {0};
    char *path = path_of(folder, lease->number);
    add_lines(&text, no_owner, 0);
    erg_file_write(path, text.data, text.count, NULL);
    free(path);
    erg_text_release(&text);
    lease->number = 0;
}
