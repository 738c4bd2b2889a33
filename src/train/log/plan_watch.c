/* Reads the plans that the scheduler writes for a job (train/log/plan_watch.h). */
#include "train/log/plan_watch.h"

#include "base/log.h"
#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16 };
static const double most_slowdown = 1e3, most_w = 1e5;

static int read_pace(struct erg_train_pace *pace, const struct erg_json_place *place,
                     struct erg_error *err)
{
    bool capped = false;
    *pace = (struct erg_train_pace){.slowdown = 1, .limit_w = INFINITY};
    if (erg_json_long(place, "number", 1, LONG_MAX, &pace->number, err) != 0 ||
        (erg_json_has(place, "slowdown") &&
         erg_json_double(place, "slowdown", 1, most_slowdown, &pace->slowdown, err) != 0) ||
        (erg_json_has(place, "capped") && erg_json_bool(place, "capped", &capped, err) != 0))
        return -1;
    return capped && erg_json_has(place, "power_w")
               ? erg_json_double(place, "power_w", 1, most_w, &pace->limit_w, err)
               : 0;
}

static int read_plan(const char *path, struct erg_train_pace *pace, struct erg_error *err)
{
    struct erg_json_place place;
    json_t *root;
    char *text;
    size_t length;
    if (erg_file_read(path, MOST_BYTES, &text, &length, err) != 0)
        return -1;
    int result = erg_json_open(&place, &root, path, text, length, err);
    if (result == 0) {
        result = read_pace(pace, &place, err);
        json_decref(root);
    }
    free(text);
    return result;
}

/* The owner of the spool, which contains the job's folder, is the scheduler. */
static bool is_trusted(const struct erg_plan_watch *watch, uid_t owner)
{
    struct stat spool;
    if (owner == 0 || owner == geteuid())
        return true;
    char *folder = erg_file_path(watch->path, "../..");
    bool has = stat(folder, &spool) == 0 && spool.st_uid == owner;
    free(folder);
    return has;
}

static bool is_same(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec &&
           one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static int look(struct erg_plan_watch *watch, const struct stat *now, struct erg_train_pace *pace,
                struct erg_error *err)
{
    if (!S_ISREG(now->st_mode))
        return erg_fail(err, ERG_FAILED, "'%s' is not a file; expected a plan", watch->path);
    if (!is_trusted(watch, now->st_uid))
        return erg_fail(err, ERG_FAILED,
                        "'%s' belongs to user %ld; expected the owner of the spool or the user of "
                        "the job",
                        watch->path, (long)now->st_uid);
    return read_plan(watch->path, pace, err);
}

void erg_plan_watch_open(struct erg_plan_watch *watch, const char *path)
{
    *watch = (struct erg_plan_watch){.path = path && *path ? erg_xstrdup(path) : NULL};
}

bool erg_plan_watch_look(struct erg_plan_watch *watch, struct erg_train_pace *pace)
{
    struct erg_error err;
    struct stat now;
    int result;
    if (!watch->path)
        return false;
    if (lstat(watch->path, &now) != 0) {
        result = erg_fail(&err, ERG_FAILED, "reading '%s': %s", watch->path, strerror(errno));
    } else {
        if (is_same(&now, &watch->seen))
            return false;
        watch->seen = now;
        result = look(watch, &now, pace, &err);
    }
    if (result != 0 && !watch->warned)
        erg_log(ERG_LOG_WARNING, "%s; training continues at its current pace", err.message);
    watch->warned = result != 0;
    return result == 0;
}

void erg_plan_watch_close(struct erg_plan_watch *watch)
{
    free(watch->path);
    *watch = (struct erg_plan_watch){0};
}
