/*
 * Runs of ergon train on several ranks when things go wrong: ranks that are killed or hang,
 * signals, data that cannot be read, damaged checkpoints. Whatever happens, what goes on afterwards
 * comes to the bits of a run to which nothing happened.
 *
 * $ERGON_TEST_MOMENTS: at how many random moments runs of each layout are killed;
 * $ERGON_TEST_BYTES: how many bytes of checkpoints are flipped.
 */
#define _GNU_SOURCE
#include "train_ranks.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "io/file.h"
#include "io/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* One rank says `part`, once, and nobody else says that anything failed. */
static void check_sentence(const char *part)
{
    struct erg_text all = output_of_all();
    if (times_in(all.data, part) != 1 || times_in(all.data, "ergon: ") != 1)
        fail_msg("expected one sentence with \"%s\" in:\n%s", part, all.data);
    erg_text_release(&all);
}

static void run_to_end(int ranks, const char *command)
{
    start(ranks, command);
    finish();
    for (int rank = 0; rank < ranks; rank++)
        check_status(rank, 0);
}

/* Of a rank; 0: it has not written it yet. */
static pid_t pid_of(int rank)
{
    char path[32], *text;
    snprintf(path, sizeof path, "pid.%d", rank);
    if (erg_file_read(in_folder(path), 0, &text, NULL, NULL) != 0)
        return 0;
    pid_t pid = (pid_t)atoi(text);
    free(text);
    return pid;
}

/* Waits until a run has a checkpoint. */
static void await_checkpoint(const char *run)
{
    char path[64];
    snprintf(path, sizeof path, "%s/latest", run);
    while (access(in_folder(path), F_OK) != 0) {
        assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
        nap();
    }
}

enum { UPDATES = 40 };

/* ---- jobs ---- */

/* NAME.yaml of 8 sequences a step on the degrees, with further keys of `train`. */
static void write_job(const char *name, const char *degrees, int batches, const char *keys)
{
    struct erg_text text = {0};
    char path[64];
    erg_text_printf(&text,
                    "model: model\n"
                    "cluster: {nodes: 1, gpus_per_node: %d, gpu: A100-SXM4-40GB}\n"
                    "%s\n"
                    "microbatch_size: 2\nmicrobatches: %d\nsequence: 16\n"
                    "train:\n"
                    "  updates: %d\n  learning_rate: 0.01\n  warmup: 5\n  log_every: 1\n%s\n",
                    strchr(degrees, '2') ? 4 : 1, degrees, batches, UPDATES, keys);
    snprintf(path, sizeof path, "%s.yaml", name);
    write_text(path, text.data);
    erg_text_release(&text);
}

/* ---- runs ---- */

static size_t checkpoints_of(const char *run)
{
    size_t count = 0;
    DIR *listing = opendir(in_folder(run));
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;)
        count += strncmp(entry->d_name, "step-", 5) == 0 && !strchr(entry->d_name, '.');
    if (listing)
        closedir(listing);
    return count;
}

static int count_of(const char *variable, int usual)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : usual;
}

static int64_t whole_ns; /* that a run takes to which nothing happens */

static int make_jobs(void **state)
{
    struct erg_error err;
    char text[3000];
    static const char data[] = "  data: [{file: tokens.bin, weight: 3}, {file: other.bin}]\n"
                               "  checkpoint: {every: 3, keep: 2}\n";
    setenv("ERGON_POWERCAP", "/nonexistent", 1); /* energy differs from run to run */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    if (make_folder(state) != 0 || erg_dir_make(in_folder("model"), &err) != 0)
        return -1;
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = (char)('a' + i * i % 23);
    text[sizeof text - 1] = '\0';
    write_text("model/config.json", small_llama);
    write_text("text", text);
    write_job("t2p2", "tensor: 2\npipeline: 2", 4, data);
    write_job("d2p2", "data: 2\npipeline: 2", 2, data);
    write_job("one", "tensor: 1", 4, data);
    static const char *const names[] = {"tokens", "other"};
    for (int i = 0; i < 2; i++) {
        struct erg_text line = {0};
        erg_text_printf(&line, "tokenize bytes %s/%s -o %s/%s", folder, i ? "t2p2.yaml" : "text",
                        folder, names[i]);
        check_program(line.data, 0, "1 document");
        erg_text_release(&line);
    }
    int64_t start_ns = erg_now_ns();
    run_to_end(4, "@/t2p2.yaml -o @/t2p2 --export @/t2p2-model");
    whole_ns = erg_now_ns() - start_ns;
    run_to_end(4, "@/d2p2.yaml -o @/d2p2 --export @/d2p2-model");
    return 0;
}

/* ---- kill -9 ---- */

/* Kills a rank or the whole job at any moment, again and again; what goes on is bit for bit what
 * would have been. */
static void kill_at_random(const char *layout, int count, uint64_t seed)
{
    struct erg_rng rng;
    struct erg_text script = {0};
    int resumed = 0, ended = 0;
    char command[160], run[32];
    erg_rng_seed(&rng, seed);
    snprintf(run, sizeof run, "%s-killed", layout);
    snprintf(command, sizeof command, "@/%s.yaml -o @/%s --export @/%s-model", layout, run, run);
    erg_text_printf(&script, "echo $$ >@/pid.$ERGON_RANK; exec $ERGON train %s --device host -q",
                    command);
    for (int i = 0; i < count; i++) {
        pid_t launcher = launch(script.data);
        int64_t until_ns = erg_now_ns() + (int64_t)erg_rng_below(&rng, 1000) * whole_ns / 1200;
        while (erg_now_ns() < until_ns)
            nap();
        int rank = (int)erg_rng_below(&rng, 5);
        pid_t victim = rank < 4 ? pid_of(rank) : launcher;
        kill(victim > 0 ? victim : launcher, SIGKILL);
        int status = finish_launched(launcher);
        struct erg_text all = output_of_all();
        resumed += strstr(all.data, "continues from") != NULL;
        if (status != 0 && status != 1 && status != 137)
            fail_msg("ergon run ended with %d:\n%s", status, all.data);
        bool over = strstr(all.data, "trained 40 steps") != NULL;
        erg_text_release(&all);
        if (!over)
            continue;
        ended++; /* it is looked at, and begun anew */
        shell("rm -rf @/t2p2-killed-model @/d2p2-killed-model");
        run_to_end(4, command);
        assert_same_run(run, layout);
        shell("rm -rf @/t2p2-killed @/d2p2-killed @/t2p2-killed-model @/d2p2-killed-model");
    }
    shell("rm -rf @/t2p2-killed-model @/d2p2-killed-model");
    run_to_end(4, command);
    assert_same_run(run, layout);
    assert_int_equal(checkpoints_of(run), 2);
    struct erg_text left = with_folder("ls -d @/*-killed/*.tmp* 2>/dev/null | grep -q .");
    assert_true(system(left.data) != 0); /* nothing half-written stays */
    erg_text_release(&left);
    erg_text_release(&script);
    print_message("%s: %d moments, %d runs went on from a checkpoint, %d had ended\n", layout,
                  count, resumed, ended);
}

static void killed_ranks_lose_nothing_of_their_checkpoints(void **state)
{
    (void)state;
    kill_at_random("t2p2", count_of("ERGON_TEST_MOMENTS", 5), 3);
    kill_at_random("d2p2", count_of("ERGON_TEST_MOMENTS", 5), 4);
}

/* The dead is named once, and the others end with the sentence. */
static void the_dead_is_named(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim += 2) {
        char sentence[64];
        shell("rm -rf @/dead");
        start(4, "@/t2p2.yaml -o @/dead");
        await_checkpoint("dead");
        kill(world.pids[victim], SIGKILL);
        finish();
        for (int rank = 0; rank < 4; rank++)
            check_status(rank, rank == victim ? 137 : 1);
        snprintf(sentence, sizeof sentence,
                 "rank %d was lost: its connection closed; the last "
                 "checkpoint is ",
                 victim);
        check_sentence(sentence);
    }
}

/* ---- signals ---- */

/* Whoever gets it, all ranks stop at one step with one checkpoint, and say the same. */
static void check_stop(int number, int receiver, int status)
{
    char run[32], command[160];
    snprintf(run, sizeof run, "stopped-%d", number);
    snprintf(command, sizeof command, "@/t2p2.yaml -o @/%s --export @/%s-model", run, run);
    start(4, command);
    await_steps(run, 4);
    kill(world.pids[receiver], number);
    finish();
    for (int rank = 0; rank < 4; rank++)
        check_status(rank, status);
    check_sentence("stopped at step ");
    size_t steps = lines_of(run);
    char latest[64] = "", wanted[64], path[64];
    snprintf(path, sizeof path, "%s/latest", run);
    assert_true(readlink(in_folder(path), latest, sizeof latest - 1) > 0);
    snprintf(wanted, sizeof wanted, "step-%08zu", steps);
    assert_string_equal(latest, wanted);
    assert_true(steps < UPDATES);
    run_to_end(4, command);
    assert_same_run(run, "t2p2");
}

static void a_signal_to_one_rank_stops_all(void **state)
{
    (void)state;
    check_stop(SIGUSR1, 3, 85);
    check_stop(SIGTERM, 0, 85);
    check_stop(SIGINT, 2, 130);
}

/* A second one does not wait for the step, which never ends here. */
static void a_second_signal_ends_at_once(void **state)
{
    (void)state;
    start(4, "@/t2p2.yaml -o @/twice");
    await_steps("twice", 2);
    kill(world.pids[3], SIGSTOP);
    kill(world.pids[2], SIGTERM);
    char command[128];
    snprintf(command, sizeof command, /* until the handler has run, and is gone */
             "until grep SigCgt /proc/%d/status | grep -q '....\\(....\\)\\?[01289ab]...$'; "
             "do sleep 0.01; done",
             (int)world.pids[2]);
    assert_int_equal(system(command), 0);
    kill(world.pids[2], SIGTERM);
    int status;
    assert_int_equal(waitpid(world.pids[2], &status, 0), world.pids[2]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 2)
            kill(world.pids[rank], SIGKILL);
    for (int rank = 0; rank < 4; rank++)
        if (rank != 2)
            waitpid(world.pids[rank], NULL, 0);
}

/* SIGUSR2 asks for a checkpoint, and the run goes on. */
static void a_checkpoint_can_be_asked_for(void **state)
{
    (void)state;
    write_job("asked", "tensor: 2\npipeline: 2", 4,
              "  data: [{file: tokens.bin, weight: 3}, {file: other.bin}]\n"
              "  checkpoint: {every: 0, keep: 2}\n");
    start(4, "@/asked.yaml -o @/asked --export @/asked-model");
    await_steps("asked", 4);
    kill(world.pids[1], SIGUSR2);
    finish();
    for (int rank = 0; rank < 4; rank++)
        check_status(rank, 0);
    assert_int_equal(checkpoints_of("asked"), 2); /* that one, and the one of the end */
    assert_same_run("asked", "t2p2");
    shell("rm -r @/asked/step-00000040");
    run_to_end(4, "@/asked.yaml -o @/again --resume @/asked");
}

/* ergon run comes back with what its ranks have ended with, after the last of them. */
static void the_launcher_lets_ranks_stop(void **state)
{
    (void)state;
    static const struct {
        int number, status;
    } signals[] = {{SIGUSR1, 85}, {SIGTERM, 85}, {SIGINT, 130}};
    for (size_t i = 0; i < 3; i++) {
        shell("rm -rf @/launched");
        /* The shell of a rank gets the signal, too, and lives on to say the status. */
        pid_t launcher = launch("trap : USR1 TERM INT; $ERGON train @/t2p2.yaml -q --device host "
                                "-o @/launched; s=$?; echo $s >@/status.$ERGON_RANK; exit $s");
        await_steps("launched", 4);
        kill(launcher, signals[i].number);
        assert_int_equal(finish_launched(launcher), signals[i].status);
        for (int rank = 0; rank < 4; rank++) {
            char path[32], wanted[16], *text;
            struct erg_error err;
            snprintf(path, sizeof path, "status.%d", rank);
            snprintf(wanted, sizeof wanted, "%d\n", signals[i].status);
            assert_ok(erg_file_read(in_folder(path), 0, &text, NULL, &err), &err);
            assert_string_equal(text, wanted);
            free(text);
        }
    }
}

/* ---- reports ---- */

/* The states that the reports of an incarnation go through, one word each. */
static void check_reports(long incarnation, const char *wanted)
{
    char *text;
    struct erg_error err;
    struct erg_text states = {0};
    assert_ok(erg_file_read(in_folder("reported/reports.jsonl"), 0, &text, NULL, &err), &err);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        assert_int_equal(json_integer_value(json_object_get(object, "v")), 1);
        assert_true(json_is_number(json_object_get(object, "mono_s")));
        const char *state = json_string_value(json_object_get(object, "state"));
        if (json_integer_value(json_object_get(object, "incarnation")) == incarnation)
            erg_text_printf(&states, "%s%s", states.count ? " " : "", state);
        json_int_t steps = json_integer_value(json_object_get(object, "iteration"));
        bool saved = strcmp(state, "saved") == 0;
        if (saved)
            assert_int_equal(json_integer_value(json_object_get(object, "checkpoint")), steps);
        if (saved)
            assert_true(json_is_number(json_object_get(object, "save_s")));
        json_decref(object);
    }
    assert_string_equal(states.data, wanted);
    erg_text_release(&states);
    free(text);
}

static void the_scheduler_of_the_job_hears_of_it(void **state)
{
    (void)state;
    shell("mkdir @/reported");
    setenv("ERGON_JOB", in_folder("reported"), 1);
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "run -n 4 -- %s train %s/t2p2.yaml -q --device host -o %s/told -n 5 2>&1",
                    ERGON_TEST_PROGRAM, folder, folder);
    check_program(line.data, 0, "trained 5 steps");
    check_reports(1, "loading training saving saved done");
    check_program(line.data, 0, "step-00000005, step 5");
    check_reports(2, "loading done"); /* no step was left */
    shell("tail -n 1 @/reported/reports.jsonl | grep -q '\"iteration\":5,.*\"checkpoint\":5,'");
    erg_text_release(&line);
    unsetenv("ERGON_JOB");
}

/* A run that is thought dead commits nothing more once the next one has begun. */
static void the_run_before_gives_way(void **state)
{
    (void)state;
    shell("mkdir @/superseded");
    setenv("ERGON_JOB", in_folder("superseded"), 1);
    pid_t launcher = launch("echo $$ >@/pid.$ERGON_RANK; exec $ERGON train @/t2p2.yaml -q "
                            "--device host -o @/given-way");
    unsetenv("ERGON_JOB");
    await_checkpoint("given-way");
    write_text("superseded/incarnation.7", "");
    assert_int_equal(finish_launched(launcher), ERG_SUPERSEDED);
    struct erg_text all = output_of_all();
    if (times_in(all.data, "incarnation 7 of the job in '") != 1 ||
        times_in(all.data, "this is incarnation 1: it writes no further checkpoints") != 1)
        fail_msg("a later run has begun:\n%s", all.data);
    erg_text_release(&all);
    shell("test $(readlink @/given-way/latest) != step-00000040 && ! ls @/given-way | grep tmp");
}

/* ---- hangs ---- */

/* A rank that is stopped from outside is named, and nothing is left of the job. */
static void a_stopped_rank_ends_the_job(void **state)
{
    (void)state;
    pid_t launcher = launch("echo $$ >@/pid.$ERGON_RANK; exec $ERGON train @/t2p2.yaml -q "
                            "--device host -o @/hung");
    await_checkpoint("hung");
    kill(pid_of(2), SIGSTOP);
    assert_int_equal(finish_launched(launcher), 1);
    struct erg_text all = output_of_all();
    if (!strstr(all.data, "rank 2 was lost: no sign of life for 6 s; the last checkpoint is "))
        fail_msg("rank 2 was stopped:\n%s", all.data);
    erg_text_release(&all);
}

/* ---- data ---- */

/* Tokens in order; that of sample `sample` is none of the model's words, if any. */
static void write_plain(const char *name, long sample)
{
    uint16_t tokens[UPDATES * 8 * 16 + 1];
    struct erg_error err;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        tokens[i] = (uint16_t)(i * i % 251);
    if (sample >= 0)
        tokens[sample * 16 + 5] = 999;
    assert_ok(erg_file_write(in_folder(name), (const char *)tokens, sizeof tokens, &err), &err);
}

/* The steps before it are kept; once it is mended, the run goes on. */
static void bad_data_stops_behind_the_last_good_step(void **state)
{
    (void)state;
    static const char *const degrees[] = {"tensor: 2\npipeline: 2", "data: 2\npipeline: 2"};
    for (int i = 0; i < 2; i++) {
        static const char keys[] = "  data: [{file: plain, type: uint16}]\n"
                                   "  shuffle: false\n  checkpoint: {every: 4, keep: 2}\n";
        write_job("bad", degrees[i], i ? 2 : 4, keys);
        shell("rm -rf @/bad @/good @/bad-model @/good-model");
        write_plain("plain", -1);
        run_to_end(4, "@/bad.yaml -o @/good --export @/good-model");
        write_plain("plain", 8 * 6 + 7); /* of the last microbatch of step 7 */
        start(4, "@/bad.yaml -o @/bad --export @/bad-model");
        finish();
        for (int rank = 0; rank < 4; rank++)
            check_status(rank, 1);
        check_sentence("/plain: token 885 is 999, expected a word of the model, [0, 257); the last "
                       "checkpoint is ");
        assert_int_equal(lines_of("bad"), 6);
        shell("test $(readlink @/bad/latest) = step-00000006");
        write_plain("plain", 3);
        start(4, "@/bad.yaml -o @/nothing");
        finish();
        check_status(0, 1);
        check_status(3, 1);
        check_sentence("is 999, expected a word of the model");
        assert_int_equal(checkpoints_of("nothing"), 0);
        write_plain("plain", -1);
        run_to_end(4, "@/bad.yaml -o @/bad --export @/bad-model");
        assert_same_run("bad", "good");
        shell("rm -rf @/nothing");
    }
}

/* ---- numbers ---- */

/* The first element of a tensor of bf16 becomes infinite. */
static void make_infinite(const char *model, const char *tensor)
{
    char *text;
    size_t length;
    struct erg_error err;
    uint64_t header;
    assert_ok(erg_file_read(in_folder(model), 0, &text, &length, &err), &err);
    memcpy(&header, text, sizeof header);
    json_t *places = json_loadb(text + 8, (size_t)header, 0, NULL);
    assert_non_null(places);
    const json_t *offsets = json_object_get(json_object_get(places, tensor), "data_offsets");
    size_t at = 8 + (size_t)header + (size_t)json_integer_value(json_array_get(offsets, 0));
    memcpy(text + at, &(uint16_t){0x7f80}, 2);
    assert_ok(erg_file_write(in_folder(model), text, length, &err), &err);
    json_decref(places);
    free(text);
}

/* Ten steps, a checkpoint, and a sentence with the tensor. */
static void an_infinite_weight_is_named(void **state)
{
    (void)state;
    shell("cp -r @/t2p2-model @/infinite-model");
    make_infinite("infinite-model/model.safetensors", "model.layers.1.mlp.gate_proj.weight");
    start(4, "@/t2p2.yaml --init @/infinite-model -o @/infinite");
    finish();
    for (int rank = 0; rank < 4; rank++)
        check_status(rank, 1);
    check_sentence("the gradients of 10 steps in a row are not finite, and no weights were "
                   "updated; the first weight that is not finite is in "
                   "'model.layers.1.mlp.gate_proj.weight'; the last checkpoint is ");
    assert_int_equal(lines_of("infinite"), 10);
    shell("test $(readlink @/infinite/latest) = step-00000010 && "
          "grep -q '\"skipped\": *10' @/infinite/step-00000010/manifest.json && "
          "grep -q '\"updates\": *0' @/infinite/step-00000010/manifest.json");
}

/* ---- disks ---- */

/* Where the files of checkpoints grow too large, the run goes on without them. */
static void a_checkpoint_that_does_not_fit_is_a_warning(void **state)
{
    (void)state;
    struct erg_text line = {0};
    erg_text_printf(&line,
                    "run -n 4 --plain -- prlimit --fsize=50000 '%s' train %s/t2p2.yaml "
                    "--device host -o %s/limited 2>&1",
                    ERGON_TEST_PROGRAM, folder, folder);
    struct program_result result = run_program(line.data);
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(checkpoints_of("limited"), 0);
    assert_int_equal(times_in(result.out.data, "there is no checkpoint of step 3\n"), 1);
    assert_int_equal(times_in(result.out.data, "there is no checkpoint of this step\n"), 1);
    assert_int_equal(times_in(result.out.data, "trained 40 steps"), 1);
    erg_text_release(&result.out);
    erg_text_release(&line);
    shell("! ls @/limited | grep tmp");
}

/* A disk of 1 MB has room for one checkpoint of a larger model, and keeps it. */
static void a_full_disk_keeps_existing_files(void **state)
{
    (void)state;
    struct erg_text mount =
        with_folder("mkdir -p @/small && mount -t tmpfs -o size=1m none @/small 2>/dev/null");
    bool mounted = getuid() == 0 && system(mount.data) == 0;
    erg_text_release(&mount);
    if (!mounted) {
        print_message("skipped: only root can mount a disk of 1 MB\n");
        skip();
    }
    shell("mkdir @/wide && sed 's/\"hidden_size\": 16/\"hidden_size\": 48/; "
          "s/\"intermediate_size\": 24/\"intermediate_size\": 96/' @/model/config.json "
          ">@/wide/config.json && sed 's/model: model/model: wide/' @/t2p2.yaml >@/wide.yaml");
    start(4, "@/wide.yaml -o @/small/run");
    finish();
    struct erg_text all = output_of_all();
    int status[4];
    memcpy(status, world.status, sizeof status);
    start(4, "@/wide.yaml -o @/resumed --resume @/small/run -n 3");
    finish();
    struct erg_text again = output_of_all();
    shell("umount @/small");
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(status[rank], 0);
        check_status(rank, 0);
    }
    assert_non_null(strstr(all.data, "there is no checkpoint of step 6\n"));
    assert_non_null(strstr(all.data, "trained 40 steps"));
    assert_non_null(strstr(again.data, "step-00000003, step 3"));
    erg_text_release(&all);
    erg_text_release(&again);
}

/* ---- damage ---- */

static int flip(const char *path, long at, int mask)
{
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(byte ^ mask, file);
    fclose(file);
    return byte;
}

/* Any byte of any rank's file, read by one rank or by four: the checkpoint before is taken. */
static void damage_of_any_file_is_noticed(void **state)
{
    (void)state;
    struct erg_rng rng;
    int count = count_of("ERGON_TEST_BYTES", 24);
    erg_rng_seed(&rng, 8);
    shell("rm -rf @/damaged && cp -r @/d2p2 @/damaged");
    for (int i = 0; i < count; i++) {
        char name[64];
        struct stat info;
        bool four = i % 12 == 0;
        snprintf(name, sizeof name, "damaged/step-00000040/state-%05d.safetensors", i % 4);
        assert_int_equal(stat(in_folder(name), &info), 0);
        long at = (long)erg_rng_below(&rng, (size_t)info.st_size);
        int mask = 1 << erg_rng_below(&rng, 8);
        flip(in_folder(name), at, mask);
        start(four ? 4 : 1, four ? "@/d2p2.yaml -n 39 --resume @/damaged"
                                 : "@/one.yaml -n 39 --resume @/damaged");
        finish();
        struct erg_text all = output_of_all();
        for (int rank = 0; rank < world.ranks; rank++)
            check_status(rank, 0);
        if (!strstr(all.data, "step-00000039, step 39") ||
            times_in(all.data, "; using the previous checkpoint") != 1)
            fail_msg("byte %ld of %s: %s", at, name, all.data);
        erg_text_release(&all);
        flip(in_folder(name), at, mask);
    }
    start(1, "@/one.yaml -n 39 --resume @/damaged");
    finish();
    struct erg_text all = output_of_all();
    assert_non_null(strstr(all.data, "step-00000040, step 40"));
    erg_text_release(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_lose_nothing_of_their_checkpoints),
        cmocka_unit_test(the_dead_is_named),
        cmocka_unit_test(a_signal_to_one_rank_stops_all),
        cmocka_unit_test(a_second_signal_ends_at_once),
        cmocka_unit_test(a_checkpoint_can_be_asked_for),
        cmocka_unit_test(the_launcher_lets_ranks_stop),
        cmocka_unit_test(the_scheduler_of_the_job_hears_of_it),
        cmocka_unit_test(the_run_before_gives_way),
        cmocka_unit_test(a_stopped_rank_ends_the_job),
        cmocka_unit_test(bad_data_stops_behind_the_last_good_step),
        cmocka_unit_test(an_infinite_weight_is_named),
        cmocka_unit_test(a_checkpoint_that_does_not_fit_is_a_warning),
        cmocka_unit_test(a_full_disk_keeps_existing_files),
        cmocka_unit_test(damage_of_any_file_is_noticed),
    };
    return cmocka_run_group_tests(tests, make_jobs, remove_folder);
}
