/* cluster/live/: job folders, whose files may be anything; the live file; lists of nodes. */
#define _DEFAULT_SOURCE /* setgroups */

#include "folder.h"

#include "cluster/live/job_folder.h"
#include "cluster/live/live_file.h"

#include <dirent.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char token[] = "0123456789abcdef";

static struct erg_live_request some_request(void)
{
    return (struct erg_live_request){.name = "bert of \"A\"",
                                     .family = "bert",
                                     .size = "2.6B",
                                     .batch = 128,
                                     .iterations = 5000,
                                     .submitted_unix_s = 1.79e9,
                                     .deadline_unix_s = INFINITY,
                                     .weight = 1,
                                     .gpus = 2,
                                     .gpus_most = 16,
                                     .uid = geteuid()};
}

static char *make_one(const char *spool)
{
    struct erg_error err;
    char *made;
    const struct erg_live_request request = some_request();
    assert_ok(erg_dir_make(in_folder(spool), &err), &err);
    assert_ok(erg_job_folder_make(&made, in_folder(spool), token, &err), &err);
    assert_ok(erg_job_folder_write_request(made, &request, &err), &err);
    return made;
}

/* ---- requests ---- */

static void requests_come_back(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    struct erg_error err;
    struct erg_live_request request = some_request(), read;
    static const char *const words[] = {"a b", "--steps=3", ""};
    request.command = (const char **)(uintptr_t)words;
    request.command_count = 3;
    request.deadline_unix_s = 1.8e9;
    request.type = "H800";
    request.per_node = true;
    request.directory = "/home/someone";
    free(make_one("back"));
    char *path = erg_file_path(in_folder("back"), token);
    assert_ok(erg_job_folder_write_request(path, &request, &err), &err);
    assert_ok(erg_job_folder_request(&read, in_folder("back"), token, geteuid(), &arena, &err),
              &err);
    assert_string_equal(read.name, "bert of \"A\"");
    assert_string_equal(read.family, "bert");
    assert_string_equal(read.size, "2.6B");
    assert_int_equal(read.batch, 128);
    assert_true(read.iterations == 5000 && read.deadline_unix_s == 1.8e9 && read.weight == 1);
    assert_true(read.gpus == 2 && read.gpus_most == 16 && read.per_node && !read.trains);
    assert_string_equal(read.type, "H800");
    assert_int_equal(read.command_count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(read.command[i], words[i]);
    request = some_request();
    assert_ok(erg_job_folder_write_request(path, &request, &err), &err);
    assert_ok(erg_job_folder_request(&read, in_folder("back"), token, geteuid(), &arena, &err),
              &err);
    assert_true(isinf(read.deadline_unix_s) && !read.type && !read.command);
    erg_arena_release(&arena);
    free(path);
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"iterations\": 5000.0", "\"iterations\": 1e300", "request.json:6: key 'iterations': "},
        {"\"iterations\": 5000.0", "\"iterations\": 0", "expected a number from 1 to "},
        {"\"gpus\": 2", "\"gpus\": -2", "key 'gpus'"},
        {"\"gpus\": 2", "\"gpus\": 17", "key 'gpus_most': 16 are fewer than the 17 GPUs asked for"},
        {"\"global_batch\": 128", "\"global_batch\": 1.5", "key 'global_batch'"},
        {"\"model\": \"bert\"", "\"model\": \"\"", "key 'model': expected 1 to 200 bytes"},
        {"\"uid\": ", "\"uid\": 1", "key 'uid': expected the owner of the folder"},
        {"{", "[", "request.json"},
    };
    struct erg_arena arena = {0};
    struct erg_error err;
    struct erg_live_request read;
    char *made = make_one("wrong"), *path = erg_file_path(made, "request.json"), *text;
    assert_ok(erg_file_read(path, 0, &text, NULL, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text changed = {0};
        const char *at = strstr(text, cases[i].from);
        assert_non_null(at);
        erg_text_printf(&changed, "%.*s%s%s", (int)(at - text), text, cases[i].to,
                        at + strlen(cases[i].from));
        assert_ok(erg_file_write(path, changed.data, changed.count, &err), &err);
        assert_fails(
            erg_job_folder_request(&read, in_folder("wrong"), token, geteuid(), &arena, &err), &err,
            cases[i].message);
        erg_text_release(&changed);
    }
    /* As long as it may be, and one more. */
    struct erg_text large = {0};
    while (large.count < 1 << 20)
        erg_text_add(&large, " ");
    erg_text_add(&large, text);
    assert_ok(erg_file_write(path, large.data, large.count, &err), &err);
    assert_fails(erg_job_folder_request(&read, in_folder("wrong"), token, geteuid(), &arena, &err),
                 &err, "/request.json': it has more than 1048576 bytes");
    erg_text_release(&large);
    erg_arena_release(&arena);
    free(text);
    free(path);
    free(made);
}

static void tokens_differ(void **state)
{
    (void)state;
    char a[ERG_TOKEN_LENGTH + 1], b[ERG_TOKEN_LENGTH + 1];
    struct erg_error err;
    assert_ok(erg_job_folder_token(a, &err), &err);
    assert_ok(erg_job_folder_token(b, &err), &err);
    assert_int_equal(strspn(a, "0123456789abcdef"), ERG_TOKEN_LENGTH);
    assert_string_not_equal(a, b);
}

static void folders_inherit_the_group_of_the_spool(void **state)
{
    (void)state;
    struct stat info;
    char *made = make_one("alone");
    assert_int_equal(stat(made, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    free(made);
    shell("mkdir -p @/shared && chmod 3733 @/shared");
    made = make_one("shared");
    assert_int_equal(stat(made, &info), 0);
    assert_int_equal(info.st_mode & 07777, 02770);
    struct erg_error err;
    char *again;
    assert_fails(erg_job_folder_make(&again, in_folder("shared"), token, &err), &err, "exists");
    assert_fails(erg_job_folder_make(&again, in_folder("none"), token, &err), &err, "the spool '");
    free(made);
}

/* A user who may neither list the spool nor is of its group; the controller reads and writes. */
static void users_have_their_folders(void **state)
{
    (void)state;
    enum { USER = 65534 };
    struct erg_error err;
    struct erg_arena arena = {0};
    struct erg_live_request request = some_request();
    const struct erg_live_plan plan = {.type = "A40",
                                       .nodes = 1,
                                       .gpus_per_node = 1,
                                       .slowdown = 1,
                                       .power_w = NAN,
                                       .iteration_s = NAN};
    struct erg_live_plan read_plan;
    char *path;
    if (geteuid() != 0) {
        print_message("skipped: only root can be another user\n");
        skip();
    }
    shell("chmod 755 @ && mkdir @/users && chmod 3733 @/users");
    for (int turn = 0; turn < 2; turn++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            int failed = setgroups(0, NULL) || setgid(USER) || setuid(USER);
            request.uid = USER;
            if (turn == 0)
                failed = failed || erg_job_folder_make(&path, in_folder("users"), token, &err) ||
                         erg_job_folder_write_request(path, &request, &err);
            else
                failed = failed ||
                         erg_job_folder_request(&request, in_folder("users"), token, USER, &arena,
                                                &err) ||
                         erg_job_folder_read_plan(
                             &read_plan, erg_file_path(in_folder("users"), token), &arena, &err) ||
                         !read_plan.type || strcmp(read_plan.type, "A40") != 0;
            if (failed)
                fprintf(stderr, "%s\n", err.message);
            _exit(failed);
        }
        int status = -1;
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
        assert_ok(erg_job_folder_request(&request, in_folder("users"), token, USER, &arena, &err),
                  &err);
        assert_ok(erg_job_folder_plan(in_folder("users"), token, USER, &plan, &err), &err);
    }
    erg_arena_release(&arena);
}

/* ---- what is no file of the user's ---- */

static void other_things_are_not_read(void **state)
{
    (void)state;
    struct erg_arena arena = {0};
    struct erg_error err;
    struct erg_live_request read;
    struct erg_report_reader reader = {0};
    bool fresh;
    const uid_t me = geteuid();
    free(make_one("other"));
    char spool[64];
    snprintf(spool, sizeof spool, "%s", in_folder("other"));
    assert_fails(erg_job_folder_request(&read, spool, token, me + 1, &arena, &err), &err,
                 "expected the job's user");
    assert_fails(erg_job_folder_request(&read, spool, "../other/0123456", me, &arena, &err), &err,
                 "is not a job's token");
    assert_fails(erg_job_folder_request(&read, spool, "ffffffffffffffff", me, &arena, &err), &err,
                 "No such file");
    shell("ln -s @/other/0123456789abcdef @/other/00000000000000ff");
    assert_fails(erg_job_folder_request(&read, spool, "00000000000000ff", me, &arena, &err), &err,
                 "00000000000000ff': ");
    shell("mv @/other/0123456789abcdef/request.json @/elsewhere.json && "
          "ln -s @/elsewhere.json @/other/0123456789abcdef/request.json");
    assert_fails(erg_job_folder_request(&read, spool, token, me, &arena, &err), &err,
                 "it is a link, expected a regular file");
    /* Would block for ever. */
    shell("rm @/other/0123456789abcdef/request.json && "
          "mkfifo @/other/0123456789abcdef/request.json @/other/0123456789abcdef/reports.jsonl");
    assert_fails(erg_job_folder_request(&read, spool, token, me, &arena, &err), &err,
                 "it is not a regular file");
    assert_fails(erg_job_folder_reports(&reader, &fresh, spool, token, me, &err), &err,
                 "reports.jsonl': it is not a regular file");
    shell("rm @/other/0123456789abcdef/request.json && "
          "mkdir @/other/0123456789abcdef/request.json");
    assert_fails(erg_job_folder_request(&read, spool, token, me, &arena, &err), &err,
                 "it is not a regular file");
    if (me == 0) { /* a file of another user's, in a folder of ours */
        shell("rm @/other/0123456789abcdef/reports.jsonl && "
              "touch @/other/0123456789abcdef/reports.jsonl && "
              "chown 12345 @/other/0123456789abcdef/reports.jsonl");
        assert_fails(erg_job_folder_reports(&reader, &fresh, spool, token, me, &err), &err,
                     "it belongs to the user 12345");
    }
    erg_arena_release(&arena);
}

/* ---- reports ---- */

static void append(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

#define REPORTS "reports/0123456789abcdef/reports.jsonl"

static bool read_on(struct erg_report_reader *reader)
{
    struct erg_error err;
    bool fresh;
    assert_ok(erg_job_folder_reports(reader, &fresh, in_folder("reports"), token, geteuid(), &err),
              &err);
    return fresh;
}

static void reports_are_followed(void **state)
{
    (void)state;
    struct erg_report_reader reader = {0};
    free(make_one("reports"));
    assert_false(read_on(&reader));
    append(REPORTS, "{\"v\":1,\"incarnation\":1,\"state\":\"loading\",\"iteration\":null}\n");
    assert_true(read_on(&reader));
    assert_int_equal(reader.last.state, ERG_JOB_LOADING);
    assert_true(isnan(reader.last.iteration));
    append(REPORTS, "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":1234,"
                    "\"iteration_s\":0.84,\"joules\":1.2e6,\"checkpoint\":1200,\"load_s\":21.5,"
                    "\"save_s\":9.1,\"mono_s\":5210.3}\n{\"v\":1,\"incarn");
    assert_true(read_on(&reader));
    assert_int_equal(reader.last.state, ERG_JOB_TRAINING);
    assert_true(reader.last.iteration == 1234 && reader.last.iteration_s == 0.84 &&
                reader.last.joules == 1.2e6 && reader.last.checkpoint == 1200 &&
                reader.last.load_s == 21.5 && reader.last.save_s == 9.1 &&
                reader.last.mono_s == 5210.3);
    assert_false(read_on(&reader));
    /* The rest of the line that was there in part. */
    append(REPORTS, "ation\":2,\"state\":\"loading\",\"iteration\":1200}\n");
    assert_true(read_on(&reader));
    assert_int_equal(reader.last.incarnation, 2);
    /* One that is thought dead goes on. */
    append(REPORTS, "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":1300}\n");
    assert_false(read_on(&reader));
    assert_true(reader.last.incarnation == 2 && reader.last.iteration == 1200);
    assert_int_equal(reader.ignored, 0);
    /* Begun anew, shorter: what it says of before goes back. */
    write_text(REPORTS, "{\"v\":1,\"incarnation\":2,\"state\":\"saved\",\"iteration\":1201}\n");
    assert_true(read_on(&reader));
    assert_int_equal(reader.last.state, ERG_JOB_SAVED);
}

static void garbage_is_counted(void **state)
{
    (void)state;
    struct erg_report_reader reader = {0};
    bool fresh = false;
    static const char text[] =
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":100,\"checkpoint\":50}\n"
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":99}\n"    /* 1 goes back */
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"checkpoint\":49}\n"   /* 2 likewise */
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":NaN}\n"   /* 3 */
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":1e999}\n" /* 4 */
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":-1}\n"    /* 5 */
        "{\"v\":1,\"incarnation\":99999999999,\"state\":\"training\"}\n"           /* 6 */
        "{\"v\":1,\"incarnation\":1,\"state\":\"resting\"}\n"                      /* 7 */
        "{\"v\":2,\"incarnation\":1,\"state\":\"training\"}\n"                     /* 8 */
        "{\"v\":1,\"incarnation\":1,\"sta{\"v\":1}\n"                              /* 9 */
        "\n[]\n\xff\xfe\n"                                                         /* 10, 11 */
        "{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":101}\n";
    assert_int_equal(erg_report_reader_add(&reader, &fresh, text, sizeof text - 1),
                     sizeof text - 1);
    assert_true(fresh && reader.last.iteration == 101);
    assert_int_equal(reader.ignored, 11);
    assert_string_equal(reader.ignored_why, "the iteration or the checkpoint decreased");
}

/* A line of 1 GB costs 1 MiB of memory, and nothing of what follows it. */
static void endless_lines_are_skipped(void **state)
{
    (void)state;
    struct erg_report_reader reader = {0};
    int times = 0;
    bool fresh = false;
    char *made = make_one("endless");
    append("endless/0123456789abcdef/reports.jsonl",
           "{\"v\":1,\"incarnation\":1,\"state\":\"loading\"}\n{\"v\":1");
    shell("truncate -s 1G @/endless/0123456789abcdef/reports.jsonl");
    append("endless/0123456789abcdef/reports.jsonl",
           "\n{\"v\":1,\"incarnation\":1,\"state\":\"training\",\"iteration\":7}\n");
    for (; reader.last.state != ERG_JOB_TRAINING && times < 1100; times++) {
        struct erg_error err;
        assert_ok(
            erg_job_folder_reports(&reader, &fresh, in_folder("endless"), token, geteuid(), &err),
            &err);
    }
    assert_in_range(times, 1024, 1026);
    assert_true(reader.last.iteration == 7);
    assert_int_equal(reader.ignored, 1);
    assert_string_equal(reader.ignored_why, "a line is too long");
    free(made);
}

/* ---- plans ---- */

static void plans_reach_the_folder(void **state)
{
    (void)state;
    struct erg_error err;
    struct erg_arena arena = {0};
    struct erg_live_plan plan = {.type = "H800",
                                 .nodes = 2,
                                 .gpus_per_node = 4,
                                 .point = 1,
                                 .slowdown = 1.06,
                                 .power_w = 310,
                                 .capped = true,
                                 .iteration_s = NAN,
                                 .layout = "t=2,p=4"},
                         read;
    char *made = make_one("plans");
    assert_ok(erg_job_folder_read_plan(&read, made, &arena, &err), &err);
    assert_null(read.type);
    /* Where its place is taken by a link nothing is written behind it. */
    write_text("precious", "precious\n");
    shell("ln -s @/precious @/plans/0123456789abcdef/plan.json && "
          "ln -s @/precious @/plans/0123456789abcdef/.plan.json.new");
    assert_ok(erg_job_folder_plan(in_folder("plans"), token, geteuid(), &plan, &err), &err);
    char *text;
    assert_ok(erg_file_read(in_folder("precious"), 0, &text, NULL, &err), &err);
    assert_string_equal(text, "precious\n");
    free(text);
    assert_ok(erg_job_folder_read_plan(&read, made, &arena, &err), &err);
    assert_string_equal(read.type, "H800");
    assert_true(read.nodes == 2 && read.gpus_per_node == 4 && read.point == 1);
    assert_true(read.slowdown == 1.06 && read.power_w == 310 && read.capped &&
                isnan(read.iteration_s));
    assert_string_equal(read.layout, "t=2,p=4");
    assert_fails(erg_job_folder_plan(in_folder("plans"), token, geteuid() + 1, &plan, &err), &err,
                 "expected the job's user");
    shell("rm @/plans/0123456789abcdef/plan.json && "
          "mkdir -p @/plans/0123456789abcdef/plan.json/x");
    assert_fails(erg_job_folder_plan(in_folder("plans"), token, geteuid(), &plan, &err), &err,
                 "writing '");
    shell("test ! -e @/plans/0123456789abcdef/.plan.json.new");
    erg_arena_release(&arena);
    free(made);
}

/* ---- lists of nodes ---- */

static void check_hosts(const char *text, const char *names)
{
    struct erg_host_list hosts = {0};
    struct erg_text all = {0};
    struct erg_error err;
    assert_ok(erg_host_list_add(&hosts, text, &err), &err);
    for (size_t i = 0; i < hosts.count; i++)
        erg_text_printf(&all, "%s%s", i ? " " : "", hosts.items[i]);
    assert_string_equal(all.data, names);
    erg_text_release(&all);
    erg_host_list_release(&hosts);
}

static void host_lists_are_names(void **state)
{
    (void)state;
    struct erg_host_list hosts = {0};
    struct erg_error err;
    check_hosts("h1", "h1");
    check_hosts("h[001-003,7],x3", "h001 h002 h003 h7 x3");
    check_hosts("r[1-2]n[08-10]-gpu,a.b", "r1n08-gpu r1n09-gpu r1n10-gpu r2n08-gpu r2n09-gpu "
                                          "r2n10-gpu a.b");
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"h[1-", "a bracket is not closed"},
        {"h[3-1]", "expected numbers and ranges"},
        {"h[]", "expected numbers"},
        {"h[a]", "expected numbers"},
        {"a,,b", "a name is missing"},
        {"a,", "a name is missing"},
        {"", "a name is missing"},
        {"a b", "characters other than"},
        {"h[0-999999999]", "more than 100000"},
        {"h[1-2]]", "characters other than"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "64 characters"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa[10-11]", "64 characters"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(erg_host_list_add(&hosts, wrong[i].text, &err), &err, wrong[i].message);
    erg_host_list_release(&hosts);
}

/* ---- the live file ---- */

static const char live_text[] =
    "slurm: {partition: ergon, spool: /shared/ergon}\n"
    "profiles: profiles\n"
    "power_cap_w: 9000\n"
    "types:\n"
    "  - name: H800\n"
    "    nodes: h[001-002],x\n"
    "    gpus_per_node: 8\n"
    "    memory_gb: 80\n"
    "    idle_power_w: 60\n"
    "  - {name: A40, nodes: \"a[1-2]\", gpus_per_node: 4, memory_gb: 48, "
    "idle_power_w: 30}\n"
    "reconfiguration: {fixed_s: 45}\n";

static void live_files_name_their_nodes(void **state)
{
    (void)state;
    struct erg_live_file *live;
    struct erg_error err;
    write_text("live.yaml", live_text);
    assert_ok(erg_live_file_load(&live, in_folder("live.yaml"), &err), &err);
    assert_string_equal(live->slurm.partition, "ergon");
    assert_string_equal(live->slurm.spool, "/shared/ergon");
    assert_true(live->slurm.poll_s == 2 && live->slurm.settle_s == 5);
    assert_true(live->power_cap_w == 9000);
    assert_string_equal(live->profiles, in_folder("profiles"));
    assert_string_equal(live->policy->name, "ergon");
    assert_true(live->fleet.nodes == 5 && live->fleet.gpus == 32);
    assert_true(live->fleet.types[0].nodes == 3 && live->fleet.types[1].first_node == 3);
    assert_true(live->fleet.reconfiguration.fixed_s == 45);
    static const char *const names[] = {"h001", "h002", "x", "a1", "a2"};
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(live->nodes.items[i], names[i]);
    erg_live_file_free(live);
}

static void wrong_live_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"h[001-002],x", "3", "live.yaml:6: key 'types[0].nodes': expected the names of the nodes"},
        {"h[001-002],x", "h[001-002", "key 'types[0].nodes': \"h[001-002\" is not a list"},
        {"h[001-002],x", "a2", "the node 'a2' is listed twice"},
        {"/shared/ergon", "shared", "live.yaml:1: key 'slurm.spool': expected an absolute path"},
        {"/shared/ergon}", "/s, poll_s: 0}", "key 'slurm.poll_s': expected a number from 0.01"},
        {"/shared/ergon}", "/s, pol_s: 1}", "did you mean"},
        {"slurm: {partition: ergon, spool: /shared/ergon}\n", "", "slurm"},
        {"power_cap_w: 9000", "power_cap_w: -1", "live.yaml:3: key 'power_cap_w'"},
        {"profiles: profiles", "policy: ergno", "live.yaml:2: key 'policy': "},
        {"gpus_per_node: 8", "gpus_per_node: 0", "live.yaml:7: key 'types[0].gpus_per_node'"},
        {"name: A40", "name: H800", "the type 'H800' is listed twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct erg_text text = {0};
        struct erg_live_file *live;
        struct erg_error err;
        const char *at = strstr(live_text, cases[i].from);
        erg_text_printf(&text, "%.*s%s%s", (int)(at - live_text), live_text, cases[i].to,
                        at + strlen(cases[i].from));
        write_text("live.yaml", text.data);
        assert_fails(erg_live_file_load(&live, in_folder("live.yaml"), &err), &err,
                     cases[i].message);
        erg_text_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_back),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(tokens_differ),
        cmocka_unit_test(folders_inherit_the_group_of_the_spool),
        cmocka_unit_test(users_have_their_folders),
        cmocka_unit_test(other_things_are_not_read),
        cmocka_unit_test(reports_are_followed),
        cmocka_unit_test(garbage_is_counted),
        cmocka_unit_test(endless_lines_are_skipped),
        cmocka_unit_test(plans_reach_the_folder),
        cmocka_unit_test(host_lists_are_names),
        cmocka_unit_test(live_files_name_their_nodes),
        cmocka_unit_test(wrong_live_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
