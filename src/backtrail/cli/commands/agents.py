import click


@click.group()
def command(): ...
