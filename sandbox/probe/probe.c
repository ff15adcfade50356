/*
 * Asks a CUDA driver what it answers, and prints one JSON object a line: {"probe": name, "result": …}.
 *
 *     cc -o probe *.c -ldl && ./probe > transcript.jsonl
 *
 * Run it on a real GPU that nobody else uses, and on the simulated driver, and compare (`python -m aliquot.sandbox.probe compare`).
 * Every group of questions is asked in a process of its own: a crash is an answer too. Lines that begin with `card.` describe
 * the card and are expected to differ.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static void *library;
static int (*get_proc_address)(const char *, void **, int, uint64_t, int *);

void say(const char *probe, long long result)
{
    printf("{\"probe\": \"%s\", \"result\": %lld}\n", probe, result);
    fflush(stdout);
}

void say_text(const char *probe, const char *result)
{
    printf("{\"probe\": \"%s\", \"result\": \"%s\"}\n", probe, result);
    fflush(stdout);
}

void driver_open(void)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library != NULL)
        *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    if (get_proc_address != NULL)
        return;
    fprintf(stderr, "probe: %s\n", library == NULL ? dlerror() : "the driver is older than CUDA 12");
    exit(2);
}

void *driver_entry(const char *name, int since)
{
    void *entry = NULL;
    int status = 0;
    get_proc_address(name, &entry, since, 1, &status);
    if (entry != NULL)
        return entry;
    say_text("missing entry", name);
    exit(0);
}

int driver_look_up(const char *name, int version, uint64_t flags, int *status, const char **symbol)
{
    Dl_info info = {0};
    void *entry = NULL;
    int result = get_proc_address(name, &entry, version, flags, status);
    if (entry != NULL)
        dladdr(entry, &info);
    *symbol = info.dli_sname == NULL ? "" : info.dli_sname;
    return result;
}

void need_context(void)
{
    void *context = NULL;
    int result = ASK((unsigned), 2000, "cuInit")(0);
    if (result == 0)
        result = ASK((void **, int), 7000, "cuDevicePrimaryCtxRetain")(&context, 0);
    if (result == 0)
        result = ASK((void *), 4000, "cuCtxSetCurrent")(context);
    if (result == 0)
        return;
    say("no context", result);
    exit(0);
}

long long free_bytes(void)
{
    size_t unused = 0, total = 0;
    ASK((size_t *, size_t *), 3020, "cuMemGetInfo")(&unused, &total);
    return (long long)unused;
}

static const struct group {
    const char *name;
    void (*ask)(void);
} groups[] = {
    {"start", probe_start},   {"lookup", probe_lookup},   {"device", probe_device}, {"context", probe_context},
    {"memory", probe_memory}, {"pool", probe_pool},       {"mapping", probe_mapping}, {"array", probe_array},
    {"module", probe_module}, {"stream", probe_stream},   {"capture", probe_capture},
    {"residency", probe_residency}, {"share", probe_share},
};

static void ask(const struct group *group)
{
    char name[64];
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        driver_open();
        group->ask();
        exit(0);
    }
    waitpid(child, &status, 0);
    snprintf(name, sizeof name, "%s.end", group->name);
    say(name, WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
}

int main(void)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        ask(&groups[i]);
    return 0;
}
