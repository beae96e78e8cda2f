"""Networks: import, operators, passes, memory plan and the executor."""
