/*
 * Checkpoints of ergon train: a run that is stopped or killed goes on to the same bits, damage is
 * noticed, and what is of another run is refused.
 */
#include "train_job.h"

#include "base/random.h"
#include "io/file.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

/* 3,000 tokens are 187 samples of 16: 40 steps of 8 go over the end of an epoch. */
static const char job[] = "model: model\n"
                          "cluster: {nodes: 1, gpus_per_node: 1, gpu: A100-SXM4-40GB}\n"
                          "microbatch_size: 4\n"
                          "microbatches: 2\n"
                          "sequence: 16\n"
                          "train:\n"
                          "  data: [{file: tokens.bin, weight: 3}, {file: other.bin}]\n"
                          "  updates: 40\n"
                          "  learning_rate: 0.01\n"
                          "  warmup: 5\n"
                          "  log_every: 1\n"
                          "  checkpoint: {every: 3, keep: 2}\n";

static int make_runs(void **state)
{
    struct erg_error err;
    char text[3000];
    setenv("ERGON_POWERCAP", "/nonexistent", 1); /* energy differs from run to run */
    if (make_folder(state) != 0 || erg_dir_make(in_folder("model"), &err) != 0)
        return -1;
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = (char)('a' + i * i % 23);
    text[sizeof text - 1] = '\0';
    write_text("model/config.json", small_llama);
    write_text("text", text);
    write_text("job.yaml", job);
    check(0, "1 document", "tokenize bytes @/text -o @/tokens");
    check(0, "1 document", "tokenize bytes @/job.yaml -o @/other");
    check(0, "trained 40 steps", "train @/job.yaml -q -o @/whole --export @/whole-model");
    return 0;
}

static void stopped_runs_go_on(void **state)
{
    (void)state;
    check(0, "trained 7 steps", "train @/job.yaml -q -o @/parts -n 7");
    shell("cd @/parts && test -e step-00000007/manifest.json && test ! -e step-00000003 && "
          "test $(readlink latest) = step-00000007 && cmp step-00000007/job.yaml ../job.yaml");
    check(0, "continues from", "train @/job.yaml -q -o @/parts -n 29");
    check(0, "trained 40 steps", "train @/job.yaml -q -o @/parts --export @/parts-model");
    assert_same_run("parts", "whole");
    check(0, "step-00000040, step 40",
          "train @/job.yaml -q -o @/parts"); /* nothing is left to do */
    check(0, "trained 40 steps", "train @/job.yaml -q --resume @/parts");
    check(0, "trained 40 steps", "train @/job.yaml -q --resume @/parts/step-00000040");
    check(1, "has no checkpoint", "train @/job.yaml -q --resume @/model");
    check(1, "metrics.jsonl': this file exists", "train @/job.yaml -o @/parts --fresh");
}

/* A run that goes on from an older checkpoint leaves the later ones behind. */
static void an_older_checkpoint_is_another_way(void **state)
{
    (void)state;
    check(0, "trained 9 steps", "train @/job.yaml -q -n 9 -o @/branch");
    shell("cd @/branch && test -e step-00000006 && test -e step-00000009");
    check(0, "trained 8 steps",
          "train @/job.yaml -q -n 8 -o @/branch --resume @/branch/step-00000006");
    shell("cd @/branch && test -e step-00000006 && test -e step-00000008 && "
          "test ! -e step-00000009 && test $(readlink latest) = step-00000008");
    check(0, "continues from", "train @/job.yaml -q -n 10 -o @/branch");
    shell("cd @/branch && test $(readlink latest) = step-00000010 && "
          "test $(wc -l <metrics.jsonl) -eq 10");
}

/* Starts the run and ends it by a signal after some milliseconds; its exit status as of a shell. */
static int run_and_signal(int number, int milliseconds)
{
    struct erg_text arguments = with_folder("@/job.yaml"), output = with_folder("@/killed");
    pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stdout);
        freopen("/dev/null", "w", stderr);
        execl(ERGON_TEST_PROGRAM, "ergon", "train", arguments.data, "-q", "-o", output.data,
              (char *)NULL);
        _exit(127);
    }
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
    kill(child, number);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    erg_text_release(&arguments);
    erg_text_release(&output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Killed again and again, at any moment, the run comes to the same end. */
static void killed_runs_lose_nothing_of_their_checkpoints(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 11);
    for (int i = 0; i < 12; i++) {
        int status = run_and_signal(SIGKILL, (int)erg_rng_below(&rng, 150));
        assert_true(status == 0 || status == 128 + SIGKILL);
    }
    check(0, "trained 40 steps", "train @/job.yaml -q -o @/killed --export @/killed-model");
    assert_same_run("killed", "whole");
    shell("cd @/killed && test $(ls -d step-* | wc -l) = 2 && ! ls | grep tmp");
}

static void signals_write_a_checkpoint(void **state)
{
    (void)state;
    shell("rm -rf @/killed @/killed-model");
    static const struct {
        int number, status;
    } signals[] = {{SIGUSR1, 85}, {SIGTERM, 85}, {SIGINT, 130}};
    for (int i = 0; i < 3; i++) {
        int status = run_and_signal(signals[i].number, 60);
        /* On a loaded machine it may not have begun to listen, or may have come to its end. */
        assert_true(status == signals[i].status || status == 0 ||
                    status == 128 + signals[i].number);
    }
    check(0, "trained 40 steps", "train @/job.yaml -q -o @/killed --export @/killed-model");
    assert_same_run("killed", "whole");
}

/* Each flipped byte is noticed, and the checkpoint before is taken. */
static void damage_is_noticed(void **state)
{
    (void)state;
    struct erg_rng rng;
    erg_rng_seed(&rng, 5);
    shell("rm -rf @/damaged && cp -r @/whole @/damaged");
    static const char *const files[] = {"damaged/step-00000040/state-00000.safetensors",
                                        "damaged/step-00000040/manifest.json"};
    for (int i = 0; i < 24; i++) {
        struct stat info;
        const char *path = in_folder(files[i % 2]);
        assert_int_equal(stat(path, &info), 0);
        FILE *file = fopen(path, "r+e");
        long at = (long)erg_rng_below(&rng, (size_t)info.st_size);
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 1 << erg_rng_below(&rng, 8), file);
        fclose(file);
        struct erg_text line = with_folder("train @/job.yaml -q -n 39 --resume @/damaged 2>&1");
        struct program_result result = run_program(line.data);
        if (result.exit_code != 0 || !strstr(result.out.data, "step-00000039, step 39"))
            fail_msg("byte %ld of %s: exit code %d with:\n%s", at, path, result.exit_code,
                     result.out.data);
        erg_text_release(&result.out);
        erg_text_release(&line);
        file = fopen(path, "r+e");
        fseek(file, at, SEEK_SET);
        fputc(byte, file);
        fclose(file);
    }
    /* A number of the manifest that is as good as another. */
    shell("cp @/damaged/step-00000040/manifest.json @/manifest && "
          "sed -i 's/\"samples\": 320/\"samples\": 328/' @/damaged/step-00000040/manifest.json && "
          "! cmp -s @/manifest @/damaged/step-00000040/manifest.json");
    check(0, "step-00000039, step 39", "train @/job.yaml -q -n 39 --resume @/damaged");
    check(1, "manifest.json: this manifest is damaged: its hash is ",
          "train @/job.yaml -q --resume @/damaged/step-00000040");
    shell("mv @/manifest @/damaged/step-00000040/manifest.json");
    shell("cd @/damaged/step-00000040 && mv state-00000.safetensors ../state && "
          "mkfifo state-00000.safetensors");
    check(1, "this is a FIFO, expected a file",
          "train @/job.yaml -q --resume @/damaged/step-00000040");
    shell("mv @/damaged/state @/damaged/step-00000040/state-00000.safetensors");
    shell("cd @/damaged && mkdir loop && ln -s manifest.json loop/manifest.json");
    check(1, "loop/manifest.json': Too many levels of symbolic links",
          "train @/job.yaml -q --resume @/damaged/loop");
    shell(
        "rm -r @/damaged/step-00000039 && echo >>@/damaged/step-00000040/state-00000.safetensors");
    check(1, "expected", "train @/job.yaml -q --resume @/damaged");
}

static void checkpoints_of_other_runs_are_refused(void **state)
{
    (void)state;
    shell("sed 's/updates: 40/updates: 40\\n  seed: 3/' @/job.yaml >@/seed.yaml");
    check(1, "the seed is 0, the job's is 3; expected the job's, or --allow-change",
          "train @/seed.yaml --resume @/whole");
    shell("sed 's/microbatches: 2/microbatches: 1/' @/job.yaml >@/batch.yaml");
    check(1, "steps of 8 sequences of 16 tokens, expected those of the job, 4 of 16",
          "train @/batch.yaml --resume @/whole");
    shell("sed 's/^train:/&\\n  shuffle: false/' @/job.yaml >@/order.yaml");
    check(1, "shuffled, the job's are 0.75 of ", "train @/order.yaml --resume @/whole");
    check(0, "step-00000040, step 40",
          "train @/order.yaml -q -n 40 --resume @/whole --allow-change");
    check(0, "step-00000040, step 40",
          "train @/batch.yaml -q -n 40 --resume @/whole --allow-change");
    check(0, "step-00000040, step 40",
          "train @/seed.yaml -q -n 40 --resume @/whole --allow-change");
    /* In the folder of the run, which is then one of the new seed. */
    shell("cp -r @/whole @/changed && sed -i 's/updates: 40/updates: 42/' @/seed.yaml");
    check(1, "the seed is 0, the job's is 3", "train @/seed.yaml -q -o @/changed");
    check(0, "trained 42 steps", "train @/seed.yaml -q -o @/changed --allow-change");
    check(1, "the seed is 3, the job's is 0", "train @/job.yaml -q -o @/changed");
    shell("test $(wc -l <@/changed/metrics.jsonl) -eq 42 && grep -q '\"seed\": 3' "
          "@/changed/run.json");
    shell("sed -i 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/' @/model/config.json");
    check(1, "is of another model", "train @/job.yaml --resume @/whole");
    shell("sed -i 's/\"num_hidden_layers\": 3/\"num_hidden_layers\": 2/' @/model/config.json");
}

/* The same sizes, and another computation. */
static void unsupported_models_are_refused(void **state)
{
    (void)state;
    shell("cp @/model/config.json @/own.json");
    shell("sed -i 's/\"rms_norm_eps\": 1e-6/\"rms_norm_eps\": 1e-5/' @/model/config.json");
    check(1,
          "step-00000040/config.json: key 'rms_norm_eps': expected 1e-05, as in the job's model "
          "(or --allow-change), got 1e-06",
          "train @/job.yaml --resume @/whole");
    check(0,
          "config.json: key 'rms_norm_eps' is 1e-06; the weights are trained with the job's 1e-05",
          "train @/job.yaml -n 40 --resume @/whole --allow-change");
    shell("sed 's/1e-6/1e-6, \"rope_theta\": 20000/' @/own.json >@/model/config.json");
    check(1, "key 'rope_theta': expected 20000, as in the job's model (or --allow-change), got",
          "train @/job.yaml --resume @/whole");
    /* Four heads of four have weights of the same shapes as two of eight. */
    shell("sed 's/1e-6/1e-6, \"head_dim\": 4/; s/heads\": 2/heads\": 4/; s/heads\": 1/heads\": 2/' "
          "@/own.json >@/model/config.json");
    check(1, "of another model", "train @/job.yaml --resume @/whole");
    shell("cp @/own.json @/model/config.json");
    /* A config that is not the one that was written is damage. */
    shell("rm -rf @/config && cp -r @/whole @/config && "
          "sed -i 's/1e-6/1e-5/' @/config/step-00000040/config.json");
    check(0,
          "config.json: this file is damaged: its hash differs from the manifest's; using the "
          "previous",
          "train @/job.yaml -n 39 --resume @/config");
    shell("sed 's/^train:/tie_embeddings: false\\n&/' @/job.yaml >@/untied.yaml");
    check(0, "trained 1 step", "train @/untied.yaml -n 1 -o @/untied --export @/untied-model");
    check(0, "step 1", "train @/untied.yaml -n 1 -o @/untied");
    check(0, "trained 1 step", "train @/untied.yaml -n 1 --init @/untied-model");
    check(1, "key 'tie_word_embeddings': expected true, as in the job's model, got false",
          "train @/job.yaml -n 1 --init @/untied-model");
}

/* What the run was started with, whatever becomes of the files. */
static void inputs_are_kept_as_they_were(void **state)
{
    (void)state;
    shell("cp @/job.yaml @/own.yaml && cp @/model/config.json @/own.json");
    struct erg_text command = with_folder(
        "train @/job.yaml -q -o @/kept & train=$!; while ! test -e @/kept/step-00000003; do sleep "
        "0.01; done; echo 'train: {}' >@/job.yaml; rm @/model/config.json; wait $train");
    check_program(command.data, 0, "trained 40 steps");
    erg_text_release(&command);
    shell("cd @/kept && for step in step-*; do cmp $step/job.yaml ../own.yaml && cmp "
          "$step/config.json ../own.json; done");
    shell("cp @/own.yaml @/job.yaml && cp @/own.json @/model/config.json");
}

/* The link stands for the run; a folder that is named stands for itself. */
static void a_damaged_newest_one_is_passed_over_behind_the_link(void **state)
{
    (void)state;
    shell("rm -rf @/linked && cp -r @/whole @/linked && "
          "truncate -s 100 @/linked/step-00000040/state-00000.safetensors");
    check(0, "linked/step-00000039, step 39", "train @/job.yaml -q -n 39 --resume @/linked/latest");
    check(0, "linked/step-00000039, step 39",
          "train @/job.yaml -q -n 39 --resume @/linked/latest/");
    check(1, "step-00000040/state-00000.safetensors",
          "train @/job.yaml -q --resume @/linked/step-00000040");
    shell("rm -r @/linked/step-00000040");
    check(0, "linked/step-00000039, step 39", "train @/job.yaml -q -n 39 --resume @/linked/latest");
    shell(
        "cd @/linked && cp -r ../whole/step-00000040 . && rm latest && ln -s step-00000039 latest");
    check(0, "linked/step-00000039, step 39", "train @/job.yaml -q -n 39 --resume @/linked/latest");
    /* More updates than steps cannot be. */
    shell("cd @/linked && cp -r step-00000039 more && "
          "sed -i 's/\"updates\": 39/\"updates\": 40/' more/manifest.json");
    check(1, "key 'updates': expected at most one for each of the 39 steps, got 40",
          "train @/job.yaml -q --resume @/linked/more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_runs_go_on),
        cmocka_unit_test(an_older_checkpoint_is_another_way),
        cmocka_unit_test(killed_runs_lose_nothing_of_their_checkpoints),
        cmocka_unit_test(signals_write_a_checkpoint),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(checkpoints_of_other_runs_are_refused),
        cmocka_unit_test(unsupported_models_are_refused),
        cmocka_unit_test(inputs_are_kept_as_they_were),
        cmocka_unit_test(a_damaged_newest_one_is_passed_over_behind_the_link),
    };
    return cmocka_run_group_tests(tests, make_runs, remove_folder);
}
