/* When memory is taken that no call names: contexts, limits, modules, graphs, managed memory. */
#include <stdio.h>

#include "driver.h"

#define MIB ((size_t)1 << 20)

static long long since(long long before)
{
    return before - free_bytes();
}

static void synchronize(void)
{
    ASK((void), 2000, "cuCtxSynchronize")();
}

static void limits(void)
{
    long long before = free_bytes();
    say("residency.limit.heap", ASK((int, size_t), 3010, "cuCtxSetLimit")(2, 128 * MIB));
    say("residency.limit.heap.cost", since(before));
    before = free_bytes();
    say("residency.limit.stack", ASK((int, size_t), 3010, "cuCtxSetLimit")(0, 4096));
    say("residency.limit.stack.cost", since(before));
    say("residency.limit.stack.largest", ASK((int, size_t), 3010, "cuCtxSetLimit")(0, MIB));
}

static void contexts(void)
{
    void *context = NULL;
    long long before = free_bytes();
    say("residency.context", ASK((void **, unsigned, int), 3020, "cuCtxCreate")(&context, 0, 0));
    say("card.residency.context.cost", since(before));
    say("residency.context.destroy", ASK((void *), 4000, "cuCtxDestroy")(context));
    say("residency.context.left", since(before));
}

static void modules(void)
{
    static const char kernel[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry none()\n{\nret;\n}\n";
    void *module = NULL, *function = NULL;
    int mode = 0;
    long long before = free_bytes();
    say("residency.module.mode", ASK((int *), 11070, "cuModuleGetLoadingMode")(&mode));
    say("residency.module.mode.value", mode);
    say("residency.module.load", ASK((void **, const void *), 2000, "cuModuleLoadData")(&module, kernel));
    say("card.residency.module.load.cost", since(before));
    say("residency.module.function", ASK((void **, void *, const char *), 2000, "cuModuleGetFunction")(&function, module, "none"));
    say("card.residency.module.function.cost", since(before));
    say("residency.module.unload", ASK((void *), 2000, "cuModuleUnload")(module));
    say("card.residency.module.left", since(before));
}

static void managed(void)
{
    struct location device = {1, 0}, host = {2, 0};
    pointer p = 0;
    int place = 0;
    long long before = free_bytes();
    say("residency.managed", ASK((pointer *, size_t, unsigned), 6000, "cuMemAllocManaged")(&p, 16 * MIB, 1));
    say("residency.managed.cost", since(before));
    say("residency.managed.prefetch",
        ASK((pointer, size_t, struct location, unsigned, void *), 12020, "cuMemPrefetchAsync")(p, 8 * MIB, device, 0, NULL));
    synchronize();
    say("residency.managed.prefetch.cost", since(before));
    say("residency.managed.fill", ASK((pointer, unsigned char, size_t), 3020, "cuMemsetD8")(p, 1, 16 * MIB));
    synchronize();
    say("residency.managed.fill.cost", since(before));
    say("residency.managed.back",
        ASK((pointer, size_t, struct location, unsigned, void *), 12020, "cuMemPrefetchAsync")(p, 16 * MIB, host, 0, NULL));
    synchronize();
    say("residency.managed.back.cost", since(before));
    say("residency.managed.advise",
        ASK((pointer, size_t, int, struct location), 12020, "cuMemAdvise")(p, 16 * MIB, 3, host));
    say("residency.managed.attribute",
        ASK((void *, size_t, int, pointer, size_t), 8000, "cuMemRangeGetAttribute")(&place, sizeof place, 2, p, 16 * MIB));
    say("residency.managed.attribute.value", place);
    say("residency.managed.advise.99",
        ASK((pointer, size_t, int, struct location), 12020, "cuMemAdvise")(p, 16 * MIB, 99, host));
    say("residency.managed.prefetch.0",
        ASK((pointer, size_t, struct location, unsigned, void *), 12020, "cuMemPrefetchAsync")(p, 0, device, 0, NULL));
    say("residency.managed.free", ASK((pointer), 3020, "cuMemFree")(p));
    say("residency.managed.left", since(before));
}

/* A graph that allocates 64 MiB and, if it is told to, frees them. */
static void *graph_of(int frees, void **graph)
{
    struct {
        struct pool_props props;
        const void *access;
        size_t count, size;
        pointer address;
    } params = {.props = {.type = 1, .location = {1, 0}}, .size = 64 * MIB};
    void *node = NULL, *last = NULL, *exec = NULL;
    ASK((void **, unsigned), 10000, "cuGraphCreate")(graph, 0);
    say("residency.graph.alloc", ASK((void **, void *, const void *, size_t, void *), 11040, "cuGraphAddMemAllocNode")(
                                     &node, *graph, NULL, 0, &params));
    if (frees)
        say("residency.graph.free", ASK((void **, void *, void *const *, size_t, pointer), 11040, "cuGraphAddMemFreeNode")(
                                        &last, *graph, &node, 1, params.address));
    say("residency.graph.instantiate", ASK((void **, void *, uint64_t), 11040, "cuGraphInstantiateWithFlags")(&exec, *graph, 0));
    return exec;
}

static void graphs(void)
{
    void *graph = NULL, *again = NULL;
    long long before = free_bytes();
    void *exec = graph_of(1, &graph);
    say("residency.graph.instantiated.cost", since(before));
    say("residency.graph.instantiate.again", ASK((void **, void *, uint64_t), 11040, "cuGraphInstantiateWithFlags")(&again, graph, 0));
    say("residency.graph.clone", ASK((void **, void *), 10000, "cuGraphClone")(&again, graph));
    say("residency.graph.upload", ASK((void *, void *), 11010, "cuGraphUpload")(exec, NULL));
    synchronize();
    say("residency.graph.uploaded.cost", since(before));
    say("residency.graph.launch", ASK((void *, void *), 10000, "cuGraphLaunch")(exec, NULL));
    synchronize();
    say("residency.graph.launched.cost", since(before));
    ASK((void *), 10000, "cuGraphExecDestroy")(exec);
    ASK((void *), 10000, "cuGraphDestroy")(graph);
    say("residency.graph.destroyed.cost", since(before));
    say("residency.graph.trim", ASK((int), 11040, "cuDeviceGraphMemTrim")(0));
    say("residency.graph.trimmed.cost", since(before));
    exec = graph_of(0, &graph);
    say("residency.graph.kept.launch", ASK((void *, void *), 10000, "cuGraphLaunch")(exec, NULL));
    say("residency.graph.kept.again", ASK((void *, void *), 10000, "cuGraphLaunch")(exec, NULL));
    synchronize();
    ASK((int), 11040, "cuDeviceGraphMemTrim")(0);
    say("residency.graph.kept.cost", since(before));
}

void probe_residency(void)
{
    need_context();
    limits();
    contexts();
    modules();
    managed();
    graphs();
}
