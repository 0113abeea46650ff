"""An agent that asks a person before it spends money, and ends while it waits.

    python examples/approvals.py

The answer may come in a second or in a week, from the command line, the inspector or your own program; here the program
answers itself. Each `agent` call below stands for a process that begins, and ends. It prints:

    order-1: waits for an answer
    order-2: waits for an answer
    order-1: Shall I pay 12 euros to Lamps Ltd?
    order-2: Shall I pay 900 euros to Lamps Ltd?
    order-1: paid 12 euros
    order-2: not paid: too much
    paid: [12]
"""

from __future__ import annotations

import dataclasses

import backtrail

paid: list[int] = []


@dataclasses.dataclass
class Decision:
    """What a person decides. The inspector makes a form of it."""

    agreed: bool
    reason: str = ""


def pay(amount: int) -> str:
    paid.append(amount)
    return f"paid {amount} euros"


def agent(store: backtrail.Store, id: str, amount: int) -> str:
    try:
        with store.run(id, task="order") as run:
            question = f"Shall I pay {amount} euros to Lamps Ltd?"
            decision = run.ask("pay?", question, schema=Decision, about={"amount": amount}, expires=7 * 86400)
            if decision.agreed:
                run.result = run.step("pay", pay, amount, at_most_once=True)
            else:
                run.result = f"not paid: {decision.reason}"
    except backtrail.Suspended:
        return "waits for an answer"
    return str(run.result)


def main() -> None:
    orders = {"order-1": 12, "order-2": 900}
    with backtrail.open("memory:") as store:
        for id, amount in orders.items():
            print(f"{id}:", agent(store, id, amount))

        # Somebody looks at what waits. The digest binds the answer to what was shown.
        for pending in sorted(store.pending(), key=lambda one: one.run_id):
            print(f"{pending.run_id}:", pending.question)
            small = pending.about["amount"] < 100
            answer = {"agreed": True} if small else {"agreed": False, "reason": "too much"}
            store.answer(pending.run_id, pending.name, answer, by="ada", digest=pending.digest)

        for id, amount in orders.items():
            print(f"{id}:", agent(store, id, amount))
        print("paid:", paid)


if __name__ == "__main__":
    main()
