/*
 * The order of the house: a source file includes only headers of its own room and of rooms above
 * it in the table of docs/architecture.md, and what is *_internal.h stays in its room.
 */
#include "base/text.h"
#include "check.h"
#include "io/file.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

/* From the top of the table to its bottom, the folders of a large room after the room's own files.
 * The public headers, include/ergon/, are for everyone. */
static const char *const rooms[] = {
    "base",
    "io",
    "launch",
    "frontier",
    "model",
    "ops",
    "hardware",
    "thermal",
    "job",
    "telemetry",
    "device",
    "trace",
    "partition",
    "search",
    "probe",
    "microbatch",
    "iteration",
    "layout",
    "layout/memory",
    "layout/time",
    "layout/copies",
    "layout/search",
    "layout/energy",
    "layout/document",
    "layout/grid",
    "layout/exchange",
    "characterize",
    "plan",
    "report",
    "report/figures",
    "report/text",
    "hooks",
    "decoder",
    "train",
    "train/tokenizer",
    "train/data",
    "train/files",
    "train/checkpoint",
    "train/engine",
    "train/log",
    "train/run",
    "cluster",
    "cluster/traces",
    "cluster/schedule",
    "cluster/policies",
    "cluster/simulate",
    "cluster/sweep",
    "cluster/live",
    "optimize",
    "verify",
    "observe",
    "daemon",
    "api",
    "serve",
    "cli",
};
enum { ROOMS = sizeof rooms / sizeof *rooms };

/* Headers that a room above may include, and why. */
static const struct exception {
    const char *room, *header;
} exceptions[] = {
    /* Plain data that describes one op: the model lists ops in the words that devices run. */
    {"model", "device/work.h"},
};

/* The innermost that `path`, below src/, lies in or is; -1: none. */
static int room_index(const char *path)
{
    int found = -1;
    for (int i = 0; i < ROOMS; i++) {
        size_t length = strlen(rooms[i]);
        if (strncmp(rooms[i], path, length) == 0 && (path[length] == '/' || path[length] == '\0') &&
            (found < 0 || length > strlen(rooms[found])))
            found = i;
    }
    return found;
}

/* Whether two are the same room or folders of it. */
static bool is_same_room(int a, int b)
{
    size_t length = strcspn(rooms[a], "/");
    return length == strcspn(rooms[b], "/") && strncmp(rooms[a], rooms[b], length) == 0;
}

static bool is_exception(int room, const char *header)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (!strcmp(exceptions[i].room, rooms[room]) && !strcmp(exceptions[i].header, header))
            return true;
    return false;
}

/* What is wrong with a header of `other` in a file of cli/, or NULL: a command asks by the public
 * headers. Servers are no part of the library, so it may include serve/. */
static const char *judge_command(const char *path, int other)
{
    static const char *const open[] = {"base", "io", "serve", "cli"};
    if (strstr(path, "/cli/guardian/"))
        return NULL; /* a program of its own, without the library */
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (strcmp(rooms[other], open[i]) == 0)
            return NULL;
    return "is of a room; expected one of include/ergon/, base/, io/ or serve/";
}

/* What is wrong with `header` in a file of `room`, or NULL. */
static const char *judge(int room, const char *header)
{
    if (strncmp(header, "ergon/", 6) == 0)
        return NULL;
    int other = room_index(header);
    if (other < 0)
        return "is of no room";
    if (other == room || is_exception(room, header))
        return NULL;
    if (strstr(header, "_internal.h") && !is_same_room(room, other))
        return "is private to its room";
    return other < room ? NULL : "is of a room below";
}

/* A call of jansson that returns NULL for text that is not UTF-8 or for NaN, or NULL. */
static const char *nullable_json(const char *line)
{
    static const char *const calls[] = {"json_string(", "json_stringn(", "json_pack(",
                                        "json_sprintf(", "json_real("};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const char *at = strstr(line, calls[i]);
        if (at && (at == line || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')))
            return calls[i];
    }
    return NULL;
}

/* Adds a line per violation; counts the includes that were looked at. */
static void check_file(const char *path, int room, struct erg_text *violations, size_t *includes)
{
    char *text, *rest, *line;
    struct erg_error err;
    assert_ok(erg_file_read(path, ERG_FILE_SMALL_BYTES, &text, NULL, &err), &err);
    rest = text;
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        char header[256];
        const char *call = strcmp(rooms[room], "io") ? nullable_json(line) : NULL;
        if (call)
            erg_text_printf(violations, "%s calls %s), expected io/json.h's\n", path, call);
        if (sscanf(line, " # include \"%255[^\"]\"", header) != 1)
            continue;
        ++*includes;
        const char *wrong = judge(room, header);
        if (!wrong && strcmp(rooms[room], "cli") == 0 && room_index(header) >= 0)
            wrong = judge_command(path, room_index(header));
        if (wrong)
            erg_text_printf(violations, "%s includes %s, which %s\n", path, header, wrong);
    }
    free(text);
}

static void check_folder(const char *folder, int room, struct erg_text *violations,
                         size_t *includes)
{
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    struct dirent *entry;
    struct erg_text path = {0};
    while ((entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        struct stat info;
        path.count = 0;
        erg_text_printf(&path, "%s/%s", folder, entry->d_name);
        assert_int_equal(stat(path.data, &info), 0);
        const char *dot = strrchr(entry->d_name, '.');
        if (S_ISDIR(info.st_mode)) {
            const char *below = path.data + strlen(ERGON_TEST_SOURCE_DIR "/src/");
            check_folder(path.data, room_index(below), violations, includes);
        } else if (dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h"))) {
            check_file(path.data, room, violations, includes);
        }
    }
    erg_text_release(&path);
    closedir(listing);
}

static void test_rooms_include_only_rooms_above(void **state)
{
    (void)state;
    struct erg_text violations = {0}, folder = {0};
    size_t includes = 0;
    for (int room = 0; room < ROOMS; room++) {
        if (strchr(rooms[room], '/'))
            continue; /* is looked at with its room */
        folder.count = 0;
        erg_text_printf(&folder, "%s/src/%s", ERGON_TEST_SOURCE_DIR, rooms[room]);
        check_folder(folder.data, room, &violations, &includes);
    }
    if (violations.count)
        fail_msg("%s", violations.data);
    assert_true(includes > 100);
    erg_text_release(&folder);
    erg_text_release(&violations);
}

/* A command gives nothing that a program cannot have. */
static void test_commands_include_public_headers(void **state)
{
    (void)state;
    const char *command = ERGON_TEST_SOURCE_DIR "/src/cli/cmd_layout.c";
    assert_null(judge_command(command, room_index("base/text.h")));
    assert_null(judge_command(command, room_index("serve/serve.h")));
    assert_non_null(judge_command(command, room_index("api/answer.h")));
    assert_non_null(judge_command(command, room_index("launch/launch.h")));
}

static void test_every_folder_is_a_room(void **state)
{
    (void)state;
    DIR *listing = opendir(ERGON_TEST_SOURCE_DIR "/src");
    assert_non_null(listing);
    struct dirent *entry;
    while ((entry = readdir(listing)) != NULL)
        if (!strchr(entry->d_name, '.') && room_index(entry->d_name) < 0)
            fail_msg("src/%s is not a room of docs/architecture.md", entry->d_name);
    closedir(listing);
}

static void test_the_judge(void **state)
{
    (void)state;
    int model = room_index("model"), device = room_index("device/emulated");
    int memory = room_index("layout/memory"), energy = room_index("layout/energy");
    assert_null(judge(model, "io/json.h"));
    assert_null(judge(model, "ergon/error.h"));
    assert_null(judge(model, "device/work.h"));
    assert_null(judge(device, "device/emulated/emulated_internal.h"));
    assert_string_equal(judge(model, "device/device.h"), "is of a room below");
    assert_string_equal(judge(device, "io/yaml_internal.h"), "is private to its room");
    assert_string_equal(judge(device, "check.h"), "is of no room");
    assert_null(judge(energy, "job/layout.h"));
    assert_null(judge(energy, "layout/search/layout_search_internal.h"));
    assert_string_equal(judge(memory, "layout/time/time.h"), "is of a room below");
    assert_string_equal(nullable_json("    x = json_string(name);"), "json_string(");
    assert_null(nullable_json("    x = erg_json_pack(\"{s:s}\", k, json_string_value(y));"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rooms_include_only_rooms_above),
        cmocka_unit_test(test_commands_include_public_headers),
        cmocka_unit_test(test_every_folder_is_a_room),
        cmocka_unit_test(test_the_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
