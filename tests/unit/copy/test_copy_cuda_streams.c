/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend among the caller's streams, on the stand-in for the CUDA driver (fake_cuda.h says what that shows and what not): streams
 * that are captured, events that were recorded in one, CUDA's own default streams.
 */
#include "cuda_rig.h"
#include "check_main.h"

static void *stream, *event;
static struct single single;

/* An engine whose GPU stands still, with a save of one slot enqueued. */
static void
start_held(int i)
{
	struct fake_cuda_options opt = gated();

	world_layered(&world, 2);
	gpu_begin(&world, &opt, methods[i]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	single_init(&single, &world, SCOUT__COPY_SAVE, 0);
	atomic_store(&gate_steps, 0);
	ck_assert_int_eq(ops->start(world.engine, &single.batch), 0);
	wait_until(fake_cuda_pending() != 0)
		;
}

static void
end_held(void)
{
	atomic_store(&gate_steps, -1);
	ck_assert_ptr_eq(next_ended(world.engine), &single.batch);
	assert_copied(&single, &world);
	scout__cuda_api_event_free(event);
	scout__cuda_api_stream_free(stream);
	gpu_end(&world);
}

START_LOOP_TEST(a_fence_leaves_the_capture_of_its_stream_alone, 0, 2)
{
	start_held(_i);
	fake_cuda_begin_capture(stream, false);
	ck_assert_int_eq(ops->fence(world.engine, stream, NULL), SCOUT_ERR_DEVICE);
	ck_assert(fake_cuda_end_capture(stream));
	/* The same stream, no longer captured. */
	ck_assert_int_eq(ops->fence(world.engine, stream, NULL), 0);
	ck_assert_int_eq(scout__cuda_api_event_record(event, stream), 0);
	wait_queries(5);
	ck_assert(!fake_cuda_event_over(event));
	atomic_store(&gate_steps, -1);
	ck_assert_int_eq(scout__cuda_api_stream_sync(stream), 0);
	end_held();
}
END_TEST

/* _i: the legacy default stream, that of the thread. */
START_LOOP_TEST(the_default_streams_wait_like_any_other, 0, 2)
{
	void *name = _i ? SCOUT_STREAM_PER_THREAD : scout_stream(NULL);

	ck_assert(_i || name == SCOUT_STREAM_LEGACY);
	ck_assert_ptr_eq(scout_stream(name), name);
	start_held(0);
	ck_assert_int_eq(ops->fence(world.engine, name, NULL), 0);
	ck_assert_int_eq(scout__cuda_api_event_record(event, name), 0);
	wait_queries(5);
	ck_assert(!fake_cuda_event_over(event));
	atomic_store(&gate_steps, -1);
	ck_assert_int_eq(scout__cuda_api_stream_sync(name), 0);
	ck_assert(fake_cuda_event_over(event));
	end_held();
}
END_TEST

/* CUDA would break the other stream's capture, which orders itself with the legacy stream. */
START_TEST(a_fence_on_the_legacy_stream_leaves_the_capture_of_a_blocking_one_alone)
{
	start_held(0);
	fake_cuda_begin_capture(stream, true);
	ck_assert_int_eq(ops->fence(world.engine, SCOUT_STREAM_LEGACY, NULL), SCOUT_ERR_DEVICE);
	ck_assert_int_eq(ops->fence(world.engine, SCOUT_STREAM_PER_THREAD, NULL), 0);
	ck_assert(fake_cuda_end_capture(stream));
	end_held();
}
END_TEST

/* An event that was recorded in a captured stream: waiting for it would draw the engine's streams into the capture. */
START_LOOP_TEST(an_event_of_a_capture_fails_its_job_and_no_other, 0, 8)
{
	struct fake_cuda_options opt = options();
	bool load = _i & 1, layered = _i & 2;
	void *layer[2];

	world_layered(&world, 2);
	gpu_begin(&world, &opt, methods[_i / 4]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	fake_cuda_begin_capture(stream, false);
	ck_assert_int_eq(scout__cuda_api_event_record(event, stream), 0);
	single_init(&single, &world, load ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, 0);
	layer[0] = event;
	layer[1] = event;
	if (layered && !load) {
		single.batch.n_layers = 2;
		single.batch.first_plane = two_layers;
		single.batch.layer_events = layer;
	} else {
		single.batch.after = event;
	}
	run_batch(world.engine, &single.batch);
	ck_assert_int_eq(single.batch.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(single.batch.n_done, 0);
	ck_assert_ptr_nonnull(strstr(last_log, "CUDA_ERROR_CAPTURED_EVENT"));
	assert_as_model(&world, "after a job that cannot start");
	(void)fake_cuda_end_capture(stream);
	single_init(&single, &world, load ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, 1);
	run_batch(world.engine, &single.batch);
	assert_copied(&single, &world);
	scout__cuda_api_event_free(event);
	scout__cuda_api_stream_free(stream);
	gpu_end(&world);
}
END_TEST

/*
 * Four batches of one direction. The event of the first is late, and those of the third and the fourth are; of these, that of the third
 * comes first, and the fourth is stopped.
 */
START_LOOP_TEST(a_batch_whose_event_is_late_holds_up_no_other, 0, 4)
{
	enum scout__copy_direction direction = _i & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
	struct fake_cuda_options opt = options();
	atomic_bool stop = false;
	struct single s[4];
	void *forward[3], *late[3];

	world_layered(&world, 4);
	gpu_begin(&world, &opt, methods[_i / 2]);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(scout__cuda_api_stream_new(&forward[i]), 0);
		ck_assert_int_eq(scout__cuda_api_event_new(&late[i]), 0);
		fake_cuda_hold(forward[i]);
		ck_assert_int_eq(scout__cuda_api_event_record(late[i], forward[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++)
		single_init(&s[i], &world, direction, i);
	s[0].batch.after = late[0];
	s[2].batch.after = late[1];
	s[3].batch.after = late[2];
	s[3].batch.stop = &stop;
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(ops->start(world.engine, &s[i].batch), 0);
	ck_assert_ptr_eq(next_ended(world.engine), &s[1].batch);
	wait_queries(10);
	ck_assert_ptr_null(ops->poll(world.engine));
	fake_cuda_release(forward[1]);
	ck_assert_ptr_eq(next_ended(world.engine), &s[2].batch);
	atomic_store(&stop, true);
	ck_assert_ptr_eq(next_ended(world.engine), &s[3].batch);
	ck_assert_int_eq(s[3].batch.status, SCOUT_ERR_CANCELED);
	wait_queries(10);
	ck_assert_ptr_null(ops->poll(world.engine));
	for (uint32_t i = 1; i < 3; i++)
		model_copy(&world, direction, i, s[i].ids);
	if (direction == SCOUT__COPY_SAVE)
		assert_as_model(&world, "before the event of the first");
	fake_cuda_release(forward[0]);
	fake_cuda_release(forward[2]);
	ck_assert_ptr_eq(next_ended(world.engine), &s[0].batch);
	model_copy(&world, direction, 0, s[0].ids);
	assert_as_model(&world, "after all");
	for (int i = 0; i < 3; i++)
		assert_copied(&s[i], &world);
	for (int i = 0; i < 3; i++) {
		scout__cuda_api_event_free(late[i]);
		scout__cuda_api_stream_free(forward[i]);
	}
	gpu_end(&world);
}
END_TEST

/* A late batch, for whose stage there is no memory, and one for whose stage there is some. _i: the direction. */
START_LOOP_TEST(late_batches_take_their_stage_when_one_comes, 0, 2)
{
	enum scout__copy_direction direction = _i & 1 ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
	struct fake_cuda_options opt = options();
	struct fake_cuda_counts before;
	struct single s[2];
	void *forward, *late;

	world_layered(&world, 2);
	gpu_begin(&world, &opt, "staged");
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&late), 0);
	for (uint32_t i = 0; i < 2; i++) {
		fake_cuda_hold(forward);
		ck_assert_int_eq(scout__cuda_api_event_record(late, forward), 0);
		single_init(&s[i], &world, direction, i);
		s[i].batch.after = late;
		before = fake_cuda_counts();
		fake_cuda_fail_call(i == 0, FAKE_CUDA_OUT_OF_MEMORY);
		ck_assert_int_eq(ops->start(world.engine, &s[i].batch), 0);
		wait_queries(10);
		fake_cuda_release(forward);
		ck_assert_ptr_eq(next_ended(world.engine), &s[i].batch);
		ck_assert_int_eq(s[i].batch.status, 0);
		ck_assert_uint_eq(fake_cuda_counts().live - before.live, i);
		ck_assert_int_eq(fake_cuda_counts().launches > before.launches, i);
		ck_assert_ptr_nonnull(strstr(last_log, "no memory for the stage of jobs that wait for an event"));
		model_copy(&world, direction, i, s[i].ids);
	}
	assert_as_model(&world, "after both");
	scout__cuda_api_event_free(late);
	scout__cuda_api_stream_free(forward);
	gpu_end(&world);
}
END_TEST

/* The first and the last are saves of one step whose second layer is late, the third is one of another step. */
START_LOOP_TEST(a_save_whose_layers_are_late_holds_up_no_other, 0, 2)
{
	struct fake_cuda_options opt = options();
	void *early, *forward[2], *late[2], *layers[2][2];
	struct single s[4];

	world_layered(&world, 4);
	gpu_begin(&world, &opt, methods[_i]);
	ck_assert_int_eq(scout__cuda_api_event_new(&early), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(scout__cuda_api_stream_new(&forward[i]), 0);
		ck_assert_int_eq(scout__cuda_api_event_new(&late[i]), 0);
		ck_assert_int_eq(scout__cuda_api_event_record(early, forward[i]), 0);
		ck_assert_int_eq(scout__cuda_api_stream_sync(forward[i]), 0);
		fake_cuda_hold(forward[i]);
		ck_assert_int_eq(scout__cuda_api_event_record(late[i], forward[i]), 0);
		layers[i][0] = early;
		layers[i][1] = late[i];
	}
	for (uint32_t i = 0; i < 4; i++) {
		single_init(&s[i], &world, SCOUT__COPY_SAVE, i);
		if (i != 1) {
			s[i].batch.n_layers = 2;
			s[i].batch.first_plane = two_layers;
			s[i].batch.layer_events = layers[i == 2];
		}
		ck_assert_int_eq(ops->start(world.engine, &s[i].batch), 0);
	}
	ck_assert_ptr_eq(next_ended(world.engine), &s[1].batch);
	fake_cuda_release(forward[1]);
	ck_assert_ptr_eq(next_ended(world.engine), &s[2].batch);
	wait_queries(10);
	ck_assert_ptr_null(ops->poll(world.engine));
	fake_cuda_release(forward[0]);
	ck_assert_ptr_eq(next_ended(world.engine), &s[0].batch);
	ck_assert_ptr_eq(next_ended(world.engine), &s[3].batch);
	for (uint32_t i = 0; i < 4; i++) {
		assert_copied(&s[i], &world);
		model_copy(&world, SCOUT__COPY_SAVE, i, s[i].ids);
	}
	assert_as_model(&world, "after all");
	scout__cuda_api_event_free(early);
	for (int i = 0; i < 2; i++) {
		scout__cuda_api_event_free(late[i]);
		scout__cuda_api_stream_free(forward[i]);
	}
	gpu_end(&world);
}
END_TEST

START_LOOP_TEST(a_batch_that_comes_after_its_event_passes_the_late_ones, 0, 2)
{
	struct fake_cuda_options opt = options();
	void *forward, *late, *early;
	struct single s[3];

	world_layered(&world, 3);
	gpu_begin(&world, &opt, methods[_i]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&late), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&early), 0);
	ck_assert_int_eq(scout__cuda_api_event_record(early, forward), 0);
	ck_assert_int_eq(scout__cuda_api_stream_sync(forward), 0);
	fake_cuda_hold(forward);
	ck_assert_int_eq(scout__cuda_api_event_record(late, forward), 0);
	for (uint32_t i = 0; i < 3; i++) {
		single_init(&s[i], &world, SCOUT__COPY_SAVE, i);
		s[i].batch.after = i == 1 ? early : late;
	}
	ck_assert_int_eq(ops->start(world.engine, &s[0].batch), 0);
	ck_assert_int_eq(ops->start(world.engine, &s[2].batch), 0);
	wait_until(fake_cuda_pending() != 0)
		;
	run_batch(world.engine, &s[1].batch);
	assert_copied(&s[1], &world);
	fake_cuda_release(forward);
	for (int i = 0; i < 2; i++)
		(void)next_ended(world.engine);
	for (uint32_t i = 0; i < 3; i++) {
		assert_copied(&s[i], &world);
		model_copy(&world, SCOUT__COPY_SAVE, i, s[i].ids);
	}
	assert_as_model(&world, "after all");
	scout__cuda_api_event_free(early);
	scout__cuda_api_event_free(late);
	scout__cuda_api_stream_free(forward);
	gpu_end(&world);
}
END_TEST

/* A driver copies to memory that is not pinned while its caller waits: not before the event of the batch. */
START_TEST(a_late_save_of_unpinned_memory_does_not_keep_the_thread)
{
	struct fake_cuda_options opt = options();
	struct single save, load;
	void *forward, *late;

	opt.fail_pin = 1;
	opt.pageable = true;
	world_layered(&world, 2);
	gpu_begin(&world, &opt, "auto");
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&late), 0);
	fake_cuda_hold(forward);
	ck_assert_int_eq(scout__cuda_api_event_record(late, forward), 0);
	single_init(&save, &world, SCOUT__COPY_SAVE, 0);
	save.batch.after = late;
	single_init(&load, &world, SCOUT__COPY_LOAD, 1);
	ck_assert_int_eq(ops->start(world.engine, &save.batch), 0);
	wait_queries(10);
	run_batch(world.engine, &load.batch);
	assert_copied(&load, &world);
	fake_cuda_release(forward);
	ck_assert_ptr_eq(next_ended(world.engine), &save.batch);
	assert_copied(&save, &world);
	scout__cuda_api_event_free(late);
	scout__cuda_api_stream_free(forward);
	gpu_end(&world);
}
END_TEST

START_TEST(the_bus_names_a_device_in_the_kernel_s_words)
{
	struct fake_cuda_options opt = options();
	char id[32];

	opt.n_devices = 4;
	opt.device = 3;
	world_layered(&world, 1);
	gpu_start(&world, &opt);
	ck_assert(!ops->bus_id(&world.layout, id, sizeof(id)));
	fake_end(&world.engine);
	opt.bus_id = "0000:3B:0A.F";
	gpu_start(&world, &opt);
	ck_assert(ops->bus_id(&world.layout, id, sizeof(id)));
	ck_assert_str_eq(id, "0000:3b:0a.f");
	gpu_end(&world);
}
END_TEST
