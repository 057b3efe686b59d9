"""What the statistics promise, simulated: coverage of intervals, levels of tests (ST-04, ST-13).

This room stands above `scoring`, because the promises are tested on the evaluators that users meet.
"""
