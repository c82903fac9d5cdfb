/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cases of worker_gpu.c with a model of several groups. */
void groups_come_back_in_other_pages(int i);
void groups_go_layer_by_layer(int i);
void groups_sleep_and_wake_under_copies(int i);
void a_fence_on_one_group_gives_its_pages_to_the_stream(int i);
