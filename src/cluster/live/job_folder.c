/* The folders of live jobs. Their users write them, so their contents are not trusted. */
#define _GNU_SOURCE /* O_PATH, getrandom */

#include "cluster/live/job_folder.h"

#include "base/text.h"
#include "io/field_table.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_REQUEST_BYTES = 1 << 20,
    MOST_PROFILE_BYTES = 4 << 20,
    MOST_REPORTS_BYTES = 1 << 20, /* per read */
    MOST_LINE_BYTES = 4096,
    MOST_GPUS = 1000000,
};

static const double most_unix_s = 1e11, most_s = 1e9;

/* ---- contents of the files ---- */

/* clang-format off */
VALUE(words, const char *, .type = ERG_FIELD_TEXT);

#define T struct erg_live_request
TABLE(request, T,
    TEXT("name", name),
    TEXT("model", family),
    TEXT("param_num", size),
    LONG("global_batch", batch, RANGE(1, 1e9)),
    DOUBLE("iterations", iterations, RANGE(1, 1e15)),
    DOUBLE("submitted_unix_s", submitted_unix_s, RANGE(0, most_unix_s)),
    DOUBLE("deadline_unix_s", deadline_unix_s, UNKNOWN(0, most_unix_s)),
    DOUBLE("weight", weight, RANGE(1e-3, 1e3)),
    INT("gpus", gpus, RANGE(1, MOST_GPUS)),
    INT("gpus_most", gpus_most, RANGE(1, MOST_GPUS)),
    TEXT_OR_NONE("type", type),
    U32("uid", uid, RANGE(0, UINT32_MAX)),
    BOOL("has_profile", has_profile),
    BOOL("trains", trains),
    BOOL("per_node", per_node),
    LIST_OR_NONE("command", command, command_count, words),
    TEXT_OR_NONE("directory", directory));
#undef T
_Static_assert(sizeof(uid_t) == sizeof(uint32_t), "request.json has a 32-bit uid");

/* A line of reports, with its format's version. */
struct report_line {
    long version;
    struct erg_report report;
};

#define T struct report_line
TABLE(line, T,
    LONG("v", version, RANGE(1, 1)),
    LONG("incarnation", report.incarnation, RANGE(1, 1e6)),
    NAME("state", report.state, erg_job_state_names),
    DOUBLE("iteration", report.iteration, UNKNOWN(0, 1e15)),
    DOUBLE("iteration_s", report.iteration_s, UNKNOWN(0, most_s)),
    DOUBLE("joules", report.joules, UNKNOWN(0, 1e18)),
    DOUBLE("checkpoint", report.checkpoint, UNKNOWN(0, 1e15)),
    DOUBLE("load_s", report.load_s, UNKNOWN(0, most_s)),
    DOUBLE("save_s", report.save_s, UNKNOWN(0, most_s)),
    DOUBLE("mono_s", report.mono_s, UNKNOWN(0, 1e12)),
    LONG("plan", report.plan, UNKNOWN(0, 1e15)));
#undef T

#define T struct erg_live_plan
TABLE(plan, T,
    LONG("number", number, UNKNOWN(0, 1e15)),
    TEXT("type", type),
    INT("nodes", nodes, RANGE(1, MOST_GPUS)),
    INT("gpus_per_node", gpus_per_node, RANGE(1, MOST_GPUS)),
    INT("point", point, RANGE(0, 1e6)),
    DOUBLE("slowdown", slowdown, UNKNOWN(1, 1e3)),
    DOUBLE("power_w", power_w, UNKNOWN(0, 1e5)),
    FIELD("capped", ERG_FIELD_BOOL, capped, .optional = true),
    DOUBLE("iteration_s", iteration_s, UNKNOWN(0, most_s)),
    TEXT_OR_NONE("layout", layout));
#undef T
/* clang-format on */

/* ---- folders of other users ---- */

static int fail_at(struct erg_error *err, const char *what, const char *spool, const char *token,
                   const char *name, const char *why)
{
    return erg_fail(err, ERG_FAILED, "%s '%s/%s%s%s': %s", what, spool, token, *name ? "/" : "",
                    name, why);
}

static bool is_token(const char *text)
{
    return strlen(text) == ERG_TOKEN_LENGTH && strspn(text, "0123456789abcdef") == ERG_TOKEN_LENGTH;
}

static int fail_owner(struct erg_error *err, const char *spool, const char *token, const char *name,
                      uid_t owner, uid_t uid)
{
    char why[96];
    snprintf(why, sizeof why, "it belongs to the user %lu, expected the job's user %lu",
             (unsigned long)owner, (unsigned long)uid);
    return fail_at(err, "reading", spool, token, name, why);
}

/* Returns the descriptor of SPOOL/TOKEN, or -1. */
static int open_folder(const char *spool, const char *token, uid_t uid, struct erg_error *err)
{
    struct stat info;
    if (!is_token(token))
        return erg_fail(err, ERG_FAILED,
                        "'%.40s' is not a job's token, expected 16 hexadecimal digits", token);
    /* Users may enter the spool, but not list it. */
    int above = open(spool, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
        return erg_fail(err, ERG_FAILED, "reading '%s': %s", spool, strerror(errno));
    int file = openat(above, token, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int failure = errno;
    close(above);
    if (file < 0)
        return fail_at(err, "reading", spool, token, "", strerror(failure));
    if (fstat(file, &info) == 0 && info.st_uid == uid)
        return file;
    close(file);
    return fail_owner(err, spool, token, "", info.st_uid, uid);
}

/* Opens a regular file of the user's in a folder. Returns 1, or 0 if there is none. */
static int open_file(int *file, int in, const char *name, struct stat *info, uid_t uid,
                     const char *spool, const char *token, struct erg_error *err)
{
    /* Nonblocking, so that a FIFO does not block; it is refused below. */
    *file = openat(in, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*file < 0 && errno == ENOENT)
        return 0;
    if (*file < 0)
        return fail_at(err, "reading", spool, token, name,
                       errno == ELOOP ? "it is a link, expected a regular file" : strerror(errno));
    if (fstat(*file, info) == 0 && S_ISREG(info->st_mode) && info->st_uid == uid)
        return 1;
    close(*file);
    return S_ISREG(info->st_mode)
               ? fail_owner(err, spool, token, name, info->st_uid, uid)
               : fail_at(err, "reading", spool, token, name, "it is not a regular file");
}

/* Reads up to `capacity` bytes from offset `from`; returns -1 with errno. */
static ssize_t read_at(int file, char *bytes, size_t capacity, off_t from)
{
    size_t count = 0;
    while (count < capacity) {
        ssize_t got = pread(file, bytes + count, capacity - count, from + (off_t)count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        count += (size_t)got;
    }
    return (ssize_t)count;
}

/* Reads a user's whole file in the folder `in`. */
static int read_file(char **text, size_t *length, size_t most, int in, const char *name,
                     const char *spool, const char *token, uid_t uid, struct erg_error *err)
{
    struct stat info;
    char why[96];
    int file, found = open_file(&file, in, name, &info, uid, spool, token, err);
    if (found == 0)
        fail_at(err, "reading", spool, token, name, strerror(ENOENT));
    if (found <= 0)
        return -1;
    char *bytes = erg_xmalloc(most + 2);
    ssize_t count = read_at(file, bytes, most + 1, 0);
    int failure = errno;
    close(file);
    if (count >= 0 && (size_t)count <= most) {
        bytes[count] = '\0';
        *text = bytes;
        *length = (size_t)count;
        return 0;
    }
    free(bytes);
    snprintf(why, sizeof why, "it has more than %zu bytes", most);
    return fail_at(err, "reading", spool, token, name, count < 0 ? strerror(failure) : why);
}

static int read_whole(char **text, size_t *length, size_t most, const char *name, const char *spool,
                      const char *token, uid_t uid, struct erg_error *err)
{
    int in = open_folder(spool, token, uid, err);
    if (in < 0)
        return -1;
    int result = read_file(text, length, most, in, name, spool, token, uid, err);
    close(in);
    return result;
}

/* ---- requests ---- */

int erg_job_folder_token(char token[ERG_TOKEN_LENGTH + 1], struct erg_error *err)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return erg_fail(err, ERG_FAILED, "drawing a random token: %s", strerror(errno));
    snprintf(token, ERG_TOKEN_LENGTH + 1, "%016" PRIx64, bits);
    return 0;
}

int erg_job_folder_make(char **folder, const char *spool, const char *token, struct erg_error *err)
{
    struct stat info;
    if (stat(spool, &info) != 0)
        return erg_fail(err, ERG_FAILED, "the spool '%s': %s", spool, strerror(errno));
    /* A new folder inherits the group and the setgid bit. A later chmod would remove the bit for
     * users who are not in the group. */
    const bool shared = info.st_mode & S_ISGID;
    char *path = erg_file_path(spool, token);
    mode_t before = umask(0);
    int result = mkdir(path, shared ? 0770 : 0700);
    int failure = errno;
    umask(before);
    if (result == 0) {
        *folder = path;
        return 0;
    }
    erg_fail(err, ERG_FAILED, "making '%s': %s", path, strerror(failure));
    free(path);
    return -1;
}

int erg_job_folder_write_request(const char *folder, const struct erg_live_request *request,
                                 struct erg_error *err)
{
    struct erg_live_request written = *request;
    if (isinf(written.deadline_unix_s))
        written.deadline_unix_s = NAN;
    json_t *document = erg_fields_json(&request_fields, &written);
    char *path = erg_file_path(folder, "request.json");
    int result = erg_json_write(path, document, err);
    free(path);
    json_decref(document);
    return result;
}

/* Text that ends up in a line of a table, a column, or an argument. */
static int check_words(const struct erg_live_request *request, const struct erg_json_place *place,
                       struct erg_error *err)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"name", request->name},
                 {"model", request->family},
                 {"param_num", request->size},
                 {"type", request->type}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text && (!*texts[i].text || strlen(texts[i].text) > 200))
            return erg_json_fail(place, texts[i].key, err, "expected 1 to 200 bytes");
    return 0;
}

int erg_job_folder_parse_request(struct erg_live_request *request, const char *name,
                                 const char *text, size_t length, struct erg_arena *arena,
                                 struct erg_error *err)
{
    struct erg_json_place place;
    json_t *root;
    *request = (struct erg_live_request){0};
    if (erg_json_open(&place, &root, name, text, length, err) != 0)
        return -1;
    int result = erg_fields_read(&request_fields, &place, request, arena, err);
    if (result == 0)
        result = check_words(request, &place, err);
    if (result == 0 && request->gpus_most < request->gpus)
        result = erg_json_fail(&place, "gpus_most", err, "%d are fewer than the %d GPUs asked for",
                               request->gpus_most, request->gpus);
    if (isnan(request->deadline_unix_s))
        request->deadline_unix_s = INFINITY;
    json_decref(root);
    return result;
}

int erg_job_folder_request(struct erg_live_request *request, const char *spool, const char *token,
                           uid_t uid, struct erg_arena *arena, struct erg_error *err)
{
    char *text;
    size_t length;
    if (read_whole(&text, &length, MOST_REQUEST_BYTES, "request.json", spool, token, uid, err) != 0)
        return -1;
    struct erg_text name = {0};
    erg_text_printf(&name, "%s/%s/request.json", spool, token);
    int result = erg_job_folder_parse_request(request, name.data, text, length, arena, err);
    if (result == 0 && request->uid != uid)
        result = erg_fail(err, ERG_FAILED,
                          "%s: key 'uid': expected the owner of the folder, %lu, got %lu",
                          name.data, (unsigned long)uid, (unsigned long)request->uid);
    erg_text_release(&name);
    free(text);
    return result;
}

int erg_job_folder_profile(char **text, size_t *length, const char *spool, const char *token,
                           uid_t uid, struct erg_error *err)
{
    return read_whole(text, length, MOST_PROFILE_BYTES, "profile.csv", spool, token, uid, err);
}

static uint64_t add_to_stamp(uint64_t stamp, uint64_t value)
{
    for (int i = 0; i < 8; i++) /* FNV-1a */
        stamp = (stamp ^ (value >> 8 * i & 0xff)) * 0x100000001b3u;
    return stamp;
}

uint64_t erg_job_folder_stamp(const char *spool, const char *token, uid_t uid)
{
    static const char *const names[] = {"request.json", "profile.csv"};
    uint64_t stamp = 0xcbf29ce484222325u;
    const int in = open_folder(spool, token, uid, NULL);
    if (in < 0)
        return stamp;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat info;
        const bool there = fstatat(in, names[i], &info, AT_SYMLINK_NOFOLLOW) == 0;
        stamp = add_to_stamp(stamp, there);
        if (!there)
            continue;
        stamp = add_to_stamp(stamp, info.st_ino);
        stamp = add_to_stamp(stamp, (uint64_t)info.st_size);
        /* Changes with the contents, mode, owner and name. */
        stamp = add_to_stamp(stamp, (uint64_t)info.st_ctim.tv_sec);
        stamp = add_to_stamp(stamp, (uint64_t)info.st_ctim.tv_nsec);
    }
    close(in);
    return stamp;
}

/* ---- reports ---- */

static void ignore(struct erg_report_reader *reader, const char *why)
{
    if (reader->ignored++ == 0) {
        snprintf(reader->ignored_why, sizeof reader->ignored_why, "%s", why);
        erg_utf8_repair(reader->ignored_why, sizeof reader->ignored_why);
    }
}

/* Returns true if iterations or checkpoints go back within an incarnation. */
static bool goes_back(const struct erg_report *last, const struct erg_report *report)
{
    return report->incarnation == last->incarnation &&
           (report->iteration < last->iteration || report->checkpoint < last->checkpoint);
}

static bool read_report(struct erg_report_reader *reader, const char *line, size_t length)
{
    struct report_line read = {0};
    struct erg_arena arena = {0};
    struct erg_json_place place;
    struct erg_error err;
    json_t *root;
    bool fresh = false;
    if (erg_json_open(&place, &root, "reports.jsonl", line, length, &err) != 0) {
        ignore(reader, err.message);
        return false;
    }
    if (erg_fields_read(&line_fields, &place, &read, &arena, &err) != 0)
        ignore(reader, err.message);
    else if (goes_back(&reader->last, &read.report))
        ignore(reader, "the iteration or the checkpoint decreased");
    else if (read.report.incarnation >= reader->last.incarnation) {
        reader->last = read.report;
        fresh = true;
    }
    json_decref(root);
    erg_arena_release(&arena);
    return fresh;
}

size_t erg_report_reader_add(struct erg_report_reader *reader, bool *fresh, const char *bytes,
                             size_t count)
{
    size_t done = 0;
    for (const char *end; (end = memchr(bytes + done, '\n', count - done)) != NULL;) {
        size_t length = (size_t)(end - bytes) - done;
        if (reader->skipping)
            reader->skipping = false;
        else if (length > MOST_LINE_BYTES)
            ignore(reader, "a line is too long");
        else if (length > 0)
            *fresh |= read_report(reader, bytes + done, length);
        done += length + 1;
    }
    if (count - done <= MOST_LINE_BYTES && !reader->skipping)
        return done;
    if (count > done && !reader->skipping) {
        ignore(reader, "a line is too long");
        reader->skipping = true;
    }
    return count;
}

int erg_job_folder_reports(struct erg_report_reader *reader, bool *fresh, const char *spool,
                           const char *token, uid_t uid, struct erg_error *err)
{
    struct stat info;
    int file, in = open_folder(spool, token, uid, err);
    *fresh = false;
    if (in < 0)
        return -1;
    int found = open_file(&file, in, "reports.jsonl", &info, uid, spool, token, err);
    close(in);
    if (found <= 0)
        return found;
    if (info.st_ino != reader->inode || info.st_size < reader->at) {
        reader->inode = info.st_ino;
        reader->at = 0;
        reader->skipping = false;
    }
    size_t most = (size_t)(info.st_size - reader->at);
    most = most < MOST_REPORTS_BYTES ? most : MOST_REPORTS_BYTES;
    char *bytes = erg_xmalloc(most + 1);
    ssize_t count = read_at(file, bytes, most, reader->at);
    int failure = errno;
    close(file);
    if (count > 0)
        reader->at += (off_t)erg_report_reader_add(reader, fresh, bytes, (size_t)count);
    free(bytes);
    return count < 0 ? fail_at(err, "reading", spool, token, "reports.jsonl", strerror(failure))
                     : 0;
}

/* ---- plans ---- */

static int write_whole(int file, const char *text)
{
    for (size_t count = strlen(text); count > 0;) {
        ssize_t written = write(file, text, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        text += written;
        count -= (size_t)written;
    }
    return 0;
}

int erg_job_folder_plan(const char *spool, const char *token, uid_t uid,
                        const struct erg_live_plan *plan, struct erg_error *err)
{
    static const char name[] = "plan.json", temporary[] = ".plan.json.new";
    int in = open_folder(spool, token, uid, err);
    if (in < 0)
        return -1;
    json_t *document = erg_fields_json(&plan_fields, plan);
    char *text = erg_json_text(document);
    json_decref(document);
    unlinkat(in, temporary, 0); /* left by a killed process */
    int file = openat(in, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool written = file >= 0 && fchmod(file, 0644) == 0 && write_whole(file, text) == 0;
    int failure = errno;
    if (file >= 0 && close(file) != 0 && written) {
        written = false;
        failure = errno;
    }
    if (written && renameat(in, temporary, in, name) != 0) {
        written = false;
        failure = errno;
    }
    if (!written && file >= 0)
        unlinkat(in, temporary, 0);
    free(text);
    close(in);
    return written ? 0 : fail_at(err, "writing", spool, token, name, strerror(failure));
}

static int parse_plan(struct erg_live_plan *plan, const char *name, const char *text, size_t length,
                      struct erg_arena *arena, struct erg_error *err)
{
    struct erg_json_place place;
    json_t *root;
    if (erg_json_open(&place, &root, name, text, length, err) != 0)
        return -1;
    int result = erg_fields_read(&plan_fields, &place, plan, arena, err);
    json_decref(root);
    return result;
}

int erg_job_folder_find_plan(struct erg_live_plan *plan, const char *spool, const char *token,
                             uid_t uid, struct erg_arena *arena, struct erg_error *err)
{
    struct stat info;
    char *text;
    size_t length;
    *plan = (struct erg_live_plan){0};
    int in = open_folder(spool, token, uid, err);
    if (in < 0)
        return -1;
    bool none = fstatat(in, "plan.json", &info, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
    int result = none ? 0
                      : read_file(&text, &length, MOST_REQUEST_BYTES, in, "plan.json", spool, token,
                                  geteuid(), err);
    close(in);
    if (none || result != 0)
        return result;
    struct erg_text name = {0};
    erg_text_printf(&name, "%s/%s/plan.json", spool, token);
    result = parse_plan(plan, name.data, text, length, arena, err) == 0 ? 1 : -1;
    erg_text_release(&name);
    free(text);
    return result;
}

int erg_job_folder_read_plan(struct erg_live_plan *plan, const char *folder,
                             struct erg_arena *arena, struct erg_error *err)
{
    size_t length;
    char *text, *path = erg_file_path(folder, "plan.json");
    *plan = (struct erg_live_plan){0};
    int result = access(path, F_OK) != 0 && errno == ENOENT ? 1 : 0;
    if (result == 0)
        result = erg_file_read(path, MOST_REQUEST_BYTES, &text, &length, err);
    if (result == 0) {
        result = parse_plan(plan, path, text, length, arena, err);
        free(text);
    }
    free(path);
    return result < 0 ? -1 : 0;
}
