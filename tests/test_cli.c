/* The command line as a whole: commands, options, help, completion, exit codes. */
#include "program.h"

static void test_overview_and_version(void **state)
{
    (void)state;
    check_program("help", 0, "Usage: ergon COMMAND");
    check_program("--help", 0, "completion");
    check_program("--version", 0, "ergon 0.");
    check_program("help completion", 0, "Usage: ergon completion bash|zsh|fish");
    check_program("completion --help", 0, "Common options:");
    /* Behind "--" options are the command's own. */
    check_program("run --help", 0, "Usage: ergon run [OPTION]... -- CMD [ARGUMENT]...\n");
    check_program("record --help", 0, "Usage: ergon record [OPTION]... [-- CMD [ARGUMENT]...]\n");
    /* Of 100 columns at most, each character one. */
    check_program("optimize --help | LC_ALL=C.UTF-8 grep -E '^.{101}' | wc -l", 0, "0\n");
    check_program("layout --help | LC_ALL=C.UTF-8 grep -E '^.{101}' | wc -l", 0, "0\n");
}

static void test_usage_errors(void **state)
{
    (void)state;
    check_program("2>&1", 2, "needs a command");
    check_program("complete 2>&1", 2, "did you mean \"completion\"?");
    check_program("xyzzy 2>&1", 2, "\"ergon help\" lists them");
    check_program("--version --json 2>&1", 2, "got the argument \"--json\", expected none");
    check_program("help plan memory 2>&1", 2, "got the argument \"memory\", expected none");
    check_program("completion 2>&1", 2, "needs bash|zsh|fish");
    check_program("completion bash zsh 2>&1", 2, "got the argument \"zsh\", expected none");
    check_program("completion tcsh 2>&1", 2, "the shell \"tcsh\"");
    check_program("optimize J --sed 1 2>&1", 2, "did you mean --seed?");
    check_program("optimize J --seed 2>&1", 2, "--seed needs a value");
    check_program("optimize J --seed=1.5 2>&1", 2, "expected a whole number");
    check_program("optimize J --seed=0x10 2>&1", 2, "expected a whole number");
    check_program("optimize J --seed -1 2>&1", 2, "expected at least 0");
    check_program("optimize J --seed 1e999 2>&1", 2, "expected a whole number");
    check_program("optimize J --seed 99999999999999999999 2>&1", 2,
                  "expected a value between 0 and 9007199254740992");
    check_program("frontier P -m 99999999999999999999 2>&1", 2, "between 1 and 1000000");
    check_program("frontier P -p 0x10 2>&1", 2, "expected a number");
    check_program("frontier P -m 2 -f csv --json 2>&1", 2, "--format csv and --json exclude");
    check_program("optimize J --json=yes 2>&1", 2, "expected no value");
    check_program("completion bash -z 2>&1", 2, "has no option -z");
    check_program("export FILE 2>&1", 2, "needs the option --format csv|jsonl|chrome (");
    check_program("verify JOB PLAN --repeatable 2>&1", 2,
                  "compute no gradients; expected --device cuda");
    check_program("completion -- --seed 2>&1", 2, "the shell \"--seed\"");
}

/* Who draws nothing takes no seed, and who prints no document does not take --json in silence. */
static void test_refused_common_options(void **state)
{
    (void)state;
    check_program("layout J --seed 1 2>&1", 2, "\"ergon layout\" has no option --seed");
    check_program("run --json -- true 2>&1", 2, "\"ergon run\" has no option --json");
    check_program("layout --help | grep -c -e --seed", 1, "0");
    check_program("layout --help", 0, "--json");
    check_program("serve --help | grep -c -e --json", 1, "0");
    check_program("completion bash | grep -A1 '^    run)' | grep -c -e --json", 1, "0");
}

static void test_former_name_of_a_command(void **state)
{
    (void)state;
    check_program("plan NOWHERE.yaml 2>&1", 1, "warning: \"ergon plan\" is now \"ergon layout\"");
    check_program("plan NOWHERE.yaml 2>&1", 1, "NOWHERE.yaml");
    check_program("plan NOWHERE.yaml -q 2>&1 | grep -c 'is now'", 1, "0");
    check_program("layout NOWHERE.yaml 2>&1 | grep -c 'is now'", 1, "0");
    check_program("plan --help", 0, "Usage: ergon layout");
    check_program("help plan", 0, "Usage: ergon layout");
    check_program("--help | grep -c '^  plan '", 1, "0");
}

static void test_failed_write_is_an_error(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip();
    check_program("completion bash 2>&1 >/dev/full", 1, "standard output failed");
}

static void test_completion_scripts_name_every_command(void **state)
{
    (void)state;
    check_program("completion bash", 0, "complete -o filenames -F _ergon ergon");
    check_program("completion zsh", 0, "#compdef ergon");
    check_program("completion fish", 0, "complete -c ergon");
    check_program("completion bash | bash -n 2>&1", 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overview_and_version),
        cmocka_unit_test(test_usage_errors),
        cmocka_unit_test(test_refused_common_options),
        cmocka_unit_test(test_former_name_of_a_command),
        cmocka_unit_test(test_failed_write_is_an_error),
        cmocka_unit_test(test_completion_scripts_name_every_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
