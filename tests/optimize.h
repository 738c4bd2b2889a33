/*
 * What the tests of `ergon optimize` share: a folder of their own, small jobs, runs of the real
 * program in it, and what came out.
 */
#ifndef ERGON_TESTS_OPTIMIZE_H
#define ERGON_TESTS_OPTIMIZE_H

#include "folder.h"
#include "program.h"

#include "io/json.h"
#include "json_file.h"
#include "stored.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/* A job of a moment: two stages, overlap in both directions, a handful of measurements. */
#define SMALL_JOB                                                                                  \
    "model: llama-3.2-1b\n"                                                                        \
    "cluster: {nodes: 1, gpus_per_node: 4, gpu: A100-SXM4-40GB}\n"                                 \
    "tensor: 2\n"                                                                                  \
    "pipeline: 2\n"                                                                                \
    "microbatch_size: 4\n"                                                                         \
    "microbatches: 2\n"                                                                            \
    "sequence: 2048\n"                                                                             \
    "search: {method: random, seed: 7, budget: 5}\n"                                               \
    "profiler: {window_s: 0.5, cooldown_s: 0.5, warmup_s: 0.5}\n"

/* In memory where possible: every measurement is synced to the disk. */
static inline int make_quick_folder(void **state)
{
    (void)state;
    return make_folder_below(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static inline void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* SMALL_JOB with one line replaced by another (both may be ""), as FOLDER/name. */
static inline void write_job(const char *name, const char *line, const char *replacement)
{
    const char *job = SMALL_JOB, *at = strstr(job, line);
    assert_non_null(at);
    struct erg_text text = {0};
    erg_text_add_bytes(&text, job, (size_t)(at - job));
    erg_text_add(&text, replacement);
    erg_text_add(&text, at + strlen(line));
    write_file(name, text.data);
    erg_text_release(&text);
}

/* Runs `ergon optimize FOLDER/job -o FOLDER/out MORE 2>&1`: exit code and a part of the output. */
static inline void check_optimize(const char *job, const char *out, const char *more, int exit_code,
                                  const char *part)
{
    struct erg_text arguments = {0};
    erg_text_printf(&arguments, "optimize %s/%s -o %s/%s %s 2>&1", folder, job, folder, out, more);
    check_program(arguments.data, exit_code, part);
    erg_text_release(&arguments);
}

/* Starts `ergon optimize FOLDER/job -o FOLDER/out`, messages into FOLDER/messages. `prepare` (may
 * be NULL) runs in the new process first. */
static inline pid_t start_optimize(const char *job, const char *out, void (*prepare)(void))
{
    char job_path[160], out_path[160];
    snprintf(job_path, sizeof job_path, "%s/%s", folder, job);
    snprintf(out_path, sizeof out_path, "%s/%s", folder, out);
    const char *messages = in_folder("messages");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int nothing = open("/dev/null", O_WRONLY);
        int file = open(messages, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (nothing < 0 || file < 0 || dup2(nothing, 1) < 0 || dup2(file, 2) < 0)
            _exit(99);
        if (prepare)
            prepare();
        execl(ERGON_TEST_PROGRAM, "ergon", "optimize", job_path, "-o", out_path, (char *)NULL);
        _exit(99);
    }
    return child;
}

/* The exit code of a process, or minus the signal that ended it. */
static inline int wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Whether FOLDER/messages has `part` in it. */
static inline void check_messages(const char *part)
{
    char text[4096] = "";
    FILE *file = fopen(in_folder("messages"), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    if (!strstr(text, part))
        fail_msg("expected \"%s\" in: %s", part, text);
}

/* FOLDER/out/plan.json; release with json_decref(). */
static inline json_t *load_plan(const char *out)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/plan.json", folder, out);
    struct erg_error err = {0};
    json_t *plan = NULL;
    assert_ok(load_json(&plan, path, &err), &err);
    return plan;
}

/* A number of the plan's "measurements". */
static inline size_t measured(const json_t *plan, const char *key)
{
    const json_t *value = json_object_get(json_object_get(plan, "measurements"), key);
    assert_true(json_is_integer(value));
    return (size_t)json_integer_value(value);
}

#endif
