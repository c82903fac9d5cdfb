/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <stdlib.h>

/*
 * DESIGN
 *
 * Purpose: graphs. A captured stream's copies, fills, kernels and external events are kept in the order of their calls, and a launch enqueues
 * them in that order in one stream. That is one of the orders that the real graph allows.
 *
 * An external event that a graph records stands for its place in the newest launch, from the launch on; a wait for one waits for what the
 * event stood for at the launch.
 */

struct standin_graph {
	struct standin_graph *next;
	struct standin_op *first, **end;
};

struct standin_graph *
standin_graph_new(void)
{
	struct standin_graph *graph = calloc(1, sizeof(*graph));

	if (graph) {
		graph->end = &graph->first;
		graph->next = standin.graphs;
		standin.graphs = graph;
	}
	return graph;
}

int
standin_graph_add(struct standin_graph *graph, const struct standin_op *op)
{
	struct standin_op *kept = malloc(sizeof(*kept));

	if (!kept)
		return DRIVER_OUT_OF_MEMORY;
	*kept = *op;
	kept->next = NULL;
	*graph->end = kept;
	graph->end = &kept->next;
	return 0;
}

void
standin_graph_end_all(void)
{
	struct standin_graph *graph = standin.graphs, *next;

	for (; graph; graph = next) {
		next = graph->next;
		for (struct standin_op *op = graph->first, *after; op; op = after) {
			after = op->next;
			free(op->launch);
			free(op);
		}
		free(graph);
	}
	standin.graphs = NULL;
}

static struct standin_graph *
graph_of(const void *handle)
{
	struct standin_graph *graph = standin.graphs;

	while (graph && (const void *)graph != handle)
		graph = graph->next;
	return graph;
}

/* The graph itself: nobody changes it any more. */
STANDIN_EXPORT CUresult
cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph handle, unsigned long long flags)
{
	int rc = standin_enter(ENTRY_cuGraphInstantiateWithFlags, NEEDS_CONTEXT | IS_UNSAFE);

	rc = rc ? rc : ret_exec && flags == 0 && graph_of(handle) ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		*ret_exec = (CUgraphExec)(void *)handle;
	return standin_leave(rc);
}

static int
launch_node(struct standin_stream *stream, const struct standin_op *node)
{
	struct standin_op op = *node;

	if (node->kind == KIND_RECORD || node->kind == KIND_WAIT)
		return standin_event_of_graph(node->event, stream, node->kind == KIND_RECORD);
	if (node->launch) {
		op.launch = malloc(sizeof(*op.launch));
		if (!op.launch)
			return DRIVER_OUT_OF_MEMORY;
		*op.launch = *node->launch;
	}
	return standin_push(stream, &op);
}

STANDIN_EXPORT CUresult
cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
	const struct standin_graph *graph = NULL;
	struct standin_stream *stream = NULL;
	bool captured = false;
	int rc = standin_enter(ENTRY_cuGraphLaunch, NEEDS_CONTEXT);

	if (rc == 0)
		graph = graph_of(handle);
	rc = rc ? rc : graph ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		stream = standin_stream_of(stream_handle, &rc);
	rc = rc ? rc : standin_stream_take(stream, &captured);
	rc = rc ? rc : captured ? DRIVER_NOT_SUPPORTED : 0; /* a graph in a graph */
	for (const struct standin_op *node = rc ? NULL : graph->first; node && rc == 0; node = node->next)
		rc = launch_node(stream, node);
	return standin_leave(rc);
}
